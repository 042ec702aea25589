"""What an exporter is: a plan turned into another program's settings, their text, and back.

Theory of operation. Each target has a document of its own, a frozen value with exactly what the target's
file can say. ``from_plan`` decides (what is lost or cannot be expressed is a warning or a refusal there);
``write`` and ``read`` are inverse: ``write(read(write(document))) == write(document)``. So what was exported
can be read back and exported again without a change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topotune.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportOptions:
    """What the user may say beside the plan.

    Attributes:
        version: of the target, as major.minor (``5.0``); None for the newest that the target knows.
        base: the target's own file that the plan's part is put into, where it takes a whole file or none.
        dtype: of gradients as they are reduced (``bf16``), for targets that count elements; None for what is
            usual there.
        plan_path: where the plan's file lies, absolute; for targets whose jobs read it there.
    """

    version: str | None = None
    base: "BaseFile | None" = None
    dtype: str | None = None
    plan_path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseFile:
    """A file of the target's own.

    Attributes:
        source: names it in errors: the path as the user wrote it.
        data: all of it.
    """

    source: str
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Translated:
    """A plan in a target's terms.

    Attributes:
        document: what the target's file will say.
        warnings: what of the plan is lost, a sentence each.
    """

    document: Any
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One program that can take a plan.

    Attributes:
        name: as ``--to`` takes it.
        summary: what it is for, one line.
        versions: of the program that the output is for (``Open MPI 4.0 to 5.0``).
        from_plan: a plan in the target's terms; refuses (UsageError) what would be wrong or dangerous there.
        write: the document's text, which ends in a newline.
        read: the document of a text; the second argument names its source in errors (InputFileError).
        environment: where the document is nothing but environment variables that no version of the program
            fails on, and that a job may be given unasked: these; else None.
        yields_to: variables with which a user has the program find out by itself what `environment` sets.
        files: where an export is more than its text in one file: all files for a path that the user named,
            with their contents, in the order in which they are to be written; else None.
        counts_elements: whether it takes a ``dtype``.
        how_to_use: how to hand the file (its path is the argument) to the program; lines of a shell or prose.
    """

    name: str
    summary: str
    versions: str
    from_plan: Callable[[Plan, ExportOptions], Translated]
    write: Callable[[Any], str]
    read: Callable[[str, str], Any]
    environment: Callable[[Any], Mapping[str, str]] | None = None
    files: Callable[[Any, Path], Mapping[Path, bytes]] | None = None
    yields_to: tuple[str, ...] = ()
    counts_elements: bool = False
    how_to_use: Callable[[str], str]
