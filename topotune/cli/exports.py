"""The verb export: topologies, plans and schedules in the terms of other programs."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topotune.cli import completion
from topotune.cli.app import FINDINGS, app
from topotune.cli.options import Force, Json, Output
from topotune.cli.output import check_output, folded, print_json, width
from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.export_check import Verification
    from topotune.topology.formats.exporting import Exported

MAX_BASE_BYTES = 2**28
"""Bound on a program's own file: MPICH's library is the largest."""


@dataclass(frozen=True)
class _Made:
    """What an export is.

    Attributes:
        exported: the text, and what is to be said about it.
        files: what is written where; None: the text, to the output.
        how_to_use: how to hand that to the program.
        verification: what a run of the program showed; None where none was asked for.
    """

    exported: "Exported"
    files: Mapping[Path, bytes] | None = None
    how_to_use: str | None = None
    verification: "Verification | None" = None


@app.command()
def export(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A plan, a schedule, a topology, or a file that import reads.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="For which program; list prints what there is.",
            autocompletion=completion.EXPORTS,
        ),
    ] = "list",
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Which node, where the format holds one.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--for", metavar="VERSION", help="The program's version.  [default: the newest known]"),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            metavar="FILE",
            help="The program's own file that the plan goes into: MPICH's libmpi.so.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Run the program here, and show that it does what the plan says."),
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help="Of gradients as they are reduced, where elements are counted: fp32, fp16, bf16.",
            autocompletion=completion.ELEMENTS,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a plan, schedule or topology for other programs. MPI, NCCL, Horovod, DeepSpeed, ….

    Example: topotune export plan.json --to openmpi-tuned -o tuned.conf
    """
    from topotune.documents import holds
    from topotune.files import write_whole

    if to == "list":
        _list_formats(as_json)
        return
    if file is None:
        raise UsageError(
            f"--to {to}: of which plan, schedule or topology?", hint=f"topotune export FILE --to {to}"
        )
    check_output(output, force, schema=None)
    only_for_plans: dict[str, object] = {
        "--for": version,
        "--base": base,
        "--verify": verify or None,
        "--dtype": dtype,
    }
    if holds(file, "topotune/plan"):
        _refuse({"--node": node}, file, "a plan, which is for all nodes")
        made = _export_plan(file, to, version, base, dtype, verify, output)
    elif holds(file, "topotune/schedule"):
        _refuse({"--node": node, **only_for_plans}, file, "a schedule, and that is for other files")
        made = _export_schedule(file, to, output)
    else:
        _refuse(only_for_plans, file, "a topology, and that is for plans")
        made = _Made(_export_topology(file, to, node))
    exported, verification = made.exported, made.verification
    files = made.files
    if files is None:
        files = {} if output is None else {output: exported.text.encode()}
    for warning in exported.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for path in files:
        check_output(path, force, schema=None)
    for path, data in files.items():
        write_whole(path, data, force=force)
    if as_json:
        said: dict[str, Any] = {"format": to, "text": exported.text, "warnings": list(exported.warnings)}
        if verification is not None:
            from topotune.export_check import verification_to_json

            said["verification"] = verification_to_json(verification)
        print_json({"schema": "topotune/export", "schema_version": 1, **said})
    elif output is None:
        print(exported.text, end="")
    else:
        for path in files:
            print(f"written to {path}", file=sys.stderr)
        if made.how_to_use is not None:
            print(made.how_to_use)
    if verification is not None:
        from topotune.report.columns import shown_on
        from topotune.report.verification import describe_verification

        with shown_on(width() if sys.stderr.isatty() else None):
            text = describe_verification(verification)
        print(folded(text, width()) if sys.stderr.isatty() else text, file=sys.stderr)
        if not verification.holds:
            raise typer.Exit(FINDINGS)


def _refuse(options: Mapping[str, object], file: Path, what: str) -> None:
    """Refuse options that say nothing about a kind of file."""
    for name, value in options.items():
        if value is not None:
            shown = name if value is True else f"{name} {value}"
            raise UsageError(f"{shown}: {file} is {what}", hint=f"leave {name} out")


def _list_formats(as_json: bool) -> None:
    from topotune.plan.exports import targets
    from topotune.report.columns import align
    from topotune.schedule import msccl_xml, mscclpp_json
    from topotune.topology.formats.exporting import SUMMARIES

    plans = [(target.name, f"{target.summary} ({target.versions})") for target in targets()]
    schedules = [(each.NAME, each.SUMMARY) for each in (msccl_xml, mscclpp_json)]
    topologies = list(SUMMARIES.items())
    if as_json:
        formats = [
            {"name": name, "of": of, "summary": summary}
            for of, listed in (("plan", plans), ("schedule", schedules), ("topology", topologies))
            for name, summary in listed
        ]
        print_json({"schema": "topotune/formats", "schema_version": 1, "formats": formats, "warnings": []})
        return
    for of, listed in (("a plan", plans), ("a schedule", schedules), ("a topology", topologies)):
        print(align([f"of {of}", ""], listed, left=(0, 1)))


def _export_plan(
    file: Path,
    to: str,
    version: str | None,
    base: Path | None,
    dtype: str | None,
    verify: bool,
    output: Path | None,
) -> _Made:
    from topotune.documents import read_bytes
    from topotune.export_check import find_check
    from topotune.plan import load_plan
    from topotune.plan.exports import BaseFile, ExportOptions, find_target
    from topotune.topology.formats.exporting import Exported

    target = find_target(to)
    check = find_check(to) if verify else None
    plan = load_plan(file)
    own = (
        None if base is None else BaseFile(source=str(base), data=read_bytes(base, max_bytes=MAX_BASE_BYTES))
    )
    if dtype is not None and not target.counts_elements:
        raise UsageError(f"--dtype {dtype}: {to} does not count elements", hint="leave --dtype out")
    options = ExportOptions(version=version, base=own, dtype=dtype, plan_path=str(file.resolve()))
    translated = target.from_plan(plan, options)
    files = None
    if output is not None and target.files is not None:
        files = target.files(translated.document, output)
    return _Made(
        Exported(target.write(translated.document), translated.warnings),
        files=files,
        how_to_use=target.how_to_use("FILE" if output is None else str(output)),
        verification=None if check is None else check(plan, target, options),
    )


def _export_schedule(file: Path, to: str, output: Path | None) -> _Made:
    from topotune.schedule import msccl_xml, mscclpp_json, read_schedule
    from topotune.schedule.msccl import msccl_program
    from topotune.schedule.mscclpp import execution_plan
    from topotune.topology.formats.exporting import Exported

    path = "FILE" if output is None else str(output)
    if to == msccl_xml.NAME:
        text = msccl_xml.write_msccl(msccl_program(read_schedule(file)))
        return _Made(Exported(text, msccl_xml.WARNINGS), how_to_use=msccl_xml.how_to_use(path))
    if to == mscclpp_json.NAME:
        text = mscclpp_json.write_mscclpp(execution_plan(read_schedule(file)))
        return _Made(Exported(text, mscclpp_json.WARNINGS), how_to_use=mscclpp_json.how_to_use(path))
    raise UsageError(
        f"--to {to}: a schedule cannot be exported to that",
        hint=f"--to {msccl_xml.NAME} or {mscclpp_json.NAME}",
    )


def _export_topology(file: Path, to: str, node: str | None) -> "Exported":
    from topotune.topology.formats import export_topology, read_files

    exported: Exported = export_topology(read_files([str(file)]), to, node=node)
    return exported
