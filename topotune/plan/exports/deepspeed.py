"""DeepSpeed: the bucket size of ZeRO, as a part of its JSON configuration.

The unit is elements of the gradients as they are reduced, which are fp16 or bf16 in most jobs and fp32 in
some. ``reduce_bucket_size`` acts in ZeRO stages 1 to 3. Stage 0 has no key: 500,000,000 elements are
written into its code, so a plan cannot reach it. Stages and ``overlap_comm`` (two buffers of this size)
stay the user's.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.buckets import one_size
from topotune.plan.exports.elements import MAX_ELEMENTS, num_elements
from topotune.plan.exports.fragment_texts import read_json, write_json
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="DeepSpeed", oldest=(0, 10), newest=(0, 19))


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepSpeedSettings:
    """What DeepSpeed's configuration says about buckets.

    Attributes:
        reduce_bucket_elements: of ZeRO's reduce bucket; None keeps DeepSpeed's own.
    """

    reduce_bucket_elements: int | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for DeepSpeed."""
    VERSIONS.chosen(options.version)
    size = one_size(plan, "DeepSpeed")
    warnings = [*size.warnings, *lost_tables(plan, "DeepSpeed")]
    if size.num_bytes is None:
        return Translated(document=DeepSpeedSettings(), warnings=tuple(warnings))
    elements, counted = num_elements(size.num_bytes, options.dtype, usual="bf16")
    warnings += [counted, "reduce_bucket_size acts in ZeRO stages 1 to 3; stage 0 has a fixed size"]
    return Translated(document=DeepSpeedSettings(reduce_bucket_elements=elements), warnings=tuple(warnings))


def write(settings: DeepSpeedSettings) -> str:
    """A JSON object to merge into the configuration; ``{}`` where nothing is set."""
    document: dict[str, Any] = {}
    if settings.reduce_bucket_elements is not None:
        document = {"zero_optimization": {"reduce_bucket_size": settings.reduce_bucket_elements}}
    return write_json(document)


def read(text: str, source: str) -> DeepSpeedSettings:
    """What `write` wrote."""
    members = read_json(text, source).members((), ("zero_optimization",))
    if not members:
        return DeepSpeedSettings()
    zero = members["zero_optimization"].members(("reduce_bucket_size",))
    return DeepSpeedSettings(reduce_bucket_elements=zero["reduce_bucket_size"].integer(1, MAX_ELEMENTS))


def how_to_use(path: str) -> str:
    """Lines of a shell and prose."""
    return (
        f"merge {path} into the job's DeepSpeed configuration:\n"
        f"  jq -s '.[0] * .[1]' ds_config.json {path} > ds_tuned.json\n"
        '"comms_logger": {"enabled": true} there prints the sizes that came of it'
    )


TARGET: Final = Target(
    name="deepspeed",
    summary="bucket size of ZeRO, a part of DeepSpeed's JSON configuration",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
    counts_elements=True,
)
