"""What the shell completes behind options that take names; verbs and options it completes by itself."""

from collections.abc import Callable, Iterable
from typing import Final


def _those(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion: the names that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _machines() -> list[str]:
    from topotune.topology.catalog import shipped_profiles

    return ["auto", *(profile.name for profile in shipped_profiles())]


def _labs() -> list[str]:
    from topotune.lab import list_profiles

    return [profile.name for profile in list_profiles()]


def _exports() -> list[str]:
    from topotune.plan.exports import targets
    from topotune.schedule import msccl_xml, mscclpp_json
    from topotune.topology.formats.exporting import SUMMARIES

    return ["list", *(target.name for target in targets()), msccl_xml.NAME, mscclpp_json.NAME, *SUMMARIES]


def _captures() -> list[str]:
    from topotune.links.foreign.catalog import READERS as BENCHMARKS
    from topotune.topology.formats.catalog import READERS

    return [*(reader.name for reader in READERS), *(reader.name for reader in BENCHMARKS)]


def _kinds() -> list[str]:
    from topotune.documents import KINDS

    return list(KINDS)


MACHINES: Final = _those(_machines)
LABS: Final = _those(_labs)
EXPORTS: Final = _those(_exports)
CAPTURES: Final = _those(_captures)
KINDS: Final = _those(_kinds)
BACKENDS: Final = _those(lambda: ["gloo", "nccl"])
SEVERITIES: Final = _those(lambda: ["info", "warning", "error"])
REPORTS: Final = _those(lambda: ["html", "md", "csv"])
COMPUTES: Final = _those(lambda: ["matmul", "sleep", "spin"])
ELEMENTS: Final = _those(lambda: ["fp32", "fp16", "bf16"])
