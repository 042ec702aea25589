"""TensorFlow: the size of packs in ``tf.distribute``'s CommunicationOptions.

0 bytes per pack mean that TensorFlow chooses; nothing else is written then. The implementation (AUTO, RING,
NCCL) stays the user's: a plan measures none of TensorFlow's. TF_CONFIG is the launcher's: it is neither
read nor written, so it reaches the job as it is.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.buckets import one_size
from topotune.plan.exports.fragment_texts import read_json, write_json
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="TensorFlow", oldest=(2, 5), newest=(2, 21))
_MAX_PACK_BYTES: Final = 2**40


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlowSettings:
    """What goes into CommunicationOptions.

    Attributes:
        bytes_per_pack: at least 1; None keeps TensorFlow's own choice.
    """

    bytes_per_pack: int | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for TensorFlow."""
    VERSIONS.chosen(options.version)
    size = one_size(plan, "TensorFlow")
    return Translated(
        document=TensorFlowSettings(bytes_per_pack=size.num_bytes),
        warnings=(*size.warnings, *lost_tables(plan, "TensorFlow")),
    )


def write(settings: TensorFlowSettings) -> str:
    """A JSON object of keyword arguments; empty where nothing is set."""
    document: dict[str, Any] = {}
    if settings.bytes_per_pack is not None:
        document = {"bytes_per_pack": settings.bytes_per_pack}
    return write_json(document)


def read(text: str, source: str) -> TensorFlowSettings:
    """What `write` wrote."""
    members = read_json(text, source).members((), ("bytes_per_pack",))
    if not members:
        return TensorFlowSettings()
    return TensorFlowSettings(bytes_per_pack=members["bytes_per_pack"].integer(1, _MAX_PACK_BYTES))


def how_to_use(path: str) -> str:
    """Lines of a training script."""
    return (
        "in the training script, with TF_CONFIG as the launcher sets it\n"
        "  import json\n"
        f"  options = tf.distribute.experimental.CommunicationOptions(**json.load(open({path!r})))\n"
        "  strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)"
    )


TARGET: Final = Target(
    name="tensorflow",
    summary="arguments of tf.distribute's CommunicationOptions, JSON",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
