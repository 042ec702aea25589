"""What outside the hardware may name the machine: clouds' instance types, topology files of vendors' images.

Nothing is asked over the network: the variables of the process and small files of the machine are read.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from topotune.documents import parse_json
from topotune.errors import InputFileError
from topotune.probe.node_launchers import RESOURCE_CONFIG
from topotune.probe.tree import Tree
from topotune.topology.recognition import Hint

INSTANCE_DATA: Final = "run/cloud-init/instance-data.json"
NCCL_CONF: Final = "etc/nccl.conf"
_MAX_FILE_BYTES: Final = 2**20

# Variables that hold an instance type; SageMaker's training toolkit sets both.
_TYPE_VARIABLES: Final = ("SM_CURRENT_INSTANCE_TYPE",)
_JSON_VARIABLES: Final = ("SM_RESOURCE_CONFIG",)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,63}")
_PATH: Final = re.compile(r"[\x21-\x7e]{1,255}")
# cloud-init's file, by data source: where the type of the instance stands.
# Source: cloud-init, "Instance metadata", and its modules DataSourceEc2 and DataSourceAzure. That of Google's
# cloud does not keep the type.
_INSTANCE_DATA_PLACES: Final = (
    ("ds", "meta_data", "instance-type"),
    ("ds", "meta_data", "imds", "compute", "vmSize"),
)


def read_hints(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Hint, ...]:
    """All that is found, in a fixed order; what cannot be read is no evidence, and left out.

    Args:
        environment: all variables of this process.
        root: the folder that holds the machine's files.
    """
    tree = Tree(root)
    return tuple(dict.fromkeys((*_types(environment, tree), *_topo_files(environment, tree))))


def _types(environment: Mapping[str, str], tree: Tree) -> Iterator[Hint]:
    claims: list[tuple[Any, str]] = [(environment.get(name), name) for name in _TYPE_VARIABLES]
    configs = [(environment.get(name), name) for name in _JSON_VARIABLES]
    configs.append((tree.text(RESOURCE_CONFIG, max_bytes=_MAX_FILE_BYTES), f"/{RESOURCE_CONFIG}"))
    claims += [(_at(_json(text, where), ("current_instance_type",)), where) for text, where in configs]
    data = _json(tree.text(INSTANCE_DATA, max_bytes=_MAX_FILE_BYTES), INSTANCE_DATA)
    claims += [(_at(data, place), f"/{INSTANCE_DATA}") for place in _INSTANCE_DATA_PLACES]
    for value, where in claims:
        if isinstance(value, str) and _WORD.fullmatch(value):
            yield Hint(kind="instance type", value=value, where=where)


def _topo_files(environment: Mapping[str, str], tree: Tree) -> Iterator[Hint]:
    claims = [(environment.get("NCCL_TOPO_FILE", ""), "NCCL_TOPO_FILE")]
    for line in (tree.text(NCCL_CONF, max_bytes=_MAX_FILE_BYTES) or "").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "NCCL_TOPO_FILE":
            claims.append((value.strip(), f"/{NCCL_CONF}"))
    for path, where in claims:
        if _PATH.fullmatch(path):
            yield Hint(kind="NCCL topology file", value=path, where=where)


def _json(text: str | None, source: str) -> Any:
    if not text:
        return None
    try:
        return parse_json(text.encode(errors="replace"), source, max_bytes=_MAX_FILE_BYTES).raw
    except InputFileError:
        return None


def _at(document: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        document = document.get(key) if isinstance(document, dict) else None
    return document
