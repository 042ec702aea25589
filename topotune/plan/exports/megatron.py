"""Megatron-LM: the bucket size of its own DDP, as arguments of the command line.

``--ddp-bucket-size`` counts parameters. Megatron keeps gradients in fp32 with ``--bf16`` and in fp16 with
``--fp16`` unless told otherwise, so one parameter is taken for 4 bytes. The flag acts only beside
``--overlap-grad-reduce`` (without it there is one bucket) and excludes ``--ddp-num-buckets``; both stay the
user's. Channels of NCCL's groups are a file of their own (`topotune.plan.exports.megatron_nccl`).
"""

import re
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.buckets import one_size
from topotune.plan.exports.elements import MAX_ELEMENTS, num_elements
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Megatron-Core", oldest=(0, 8), newest=(0, 16))
_FLAG: Final = "--ddp-bucket-size"
_ARGUMENTS: Final = re.compile(rf"{_FLAG} ([1-9][0-9]{{0,12}})\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronArguments:
    """What stands on the command line.

    Attributes:
        bucket_parameters: in one bucket; None keeps Megatron's own.
    """

    bucket_parameters: int | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Megatron-LM."""
    VERSIONS.chosen(options.version)
    size = one_size(plan, "Megatron-LM")
    warnings = [*size.warnings, *lost_tables(plan, "Megatron-LM")]
    if size.num_bytes is None:
        return Translated(document=MegatronArguments(), warnings=tuple(warnings))
    parameters, counted = num_elements(size.num_bytes, options.dtype, usual="fp32")
    warnings += [counted, f"{_FLAG} acts with --overlap-grad-reduce alone, and excludes --ddp-num-buckets"]
    return Translated(document=MegatronArguments(bucket_parameters=parameters), warnings=tuple(warnings))


def write(arguments: MegatronArguments) -> str:
    """One line of arguments; an empty one where nothing is set."""
    return "\n" if arguments.bucket_parameters is None else f"{_FLAG} {arguments.bucket_parameters}\n"


def read(text: str, source: str) -> MegatronArguments:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else.
    """
    if text == "\n":
        return MegatronArguments()
    match = _ARGUMENTS.fullmatch(text)
    if match is None or int(match[1]) > MAX_ELEMENTS:
        raise InputFileError(source, f"is not the one line '{_FLAG} N' of an export")
    return MegatronArguments(bucket_parameters=int(match[1]))


def how_to_use(path: str) -> str:
    """A line of a shell."""
    return (
        f"torchrun … pretrain_gpt.py --overlap-grad-reduce … $(cat {path})\n"
        "rank 0 logs the buckets at the start of training"
    )


TARGET: Final = Target(
    name="megatron",
    summary="bucket size of Megatron-LM's DDP, as command-line arguments",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
    counts_elements=True,
)
