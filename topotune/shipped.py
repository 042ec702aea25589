"""The profiles that come with topotune, as files: a wheel holds them in the package, a checkout beside it."""

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def shipped_profile_files(kind: str) -> dict[str, Traversable]:
    """Files by the name of their profile, sorted.

    Args:
        kind: the folder of ``profiles/``: ``machines``, ``lab``.
    """
    package = resources.files("topotune")
    folder = package / "profiles" / kind
    if not folder.is_dir():
        folder = Path(str(package)).parent / "profiles" / kind
    entries = {
        entry.name.removesuffix(".json"): entry for entry in folder.iterdir() if entry.name.endswith(".json")
    }
    return dict(sorted(entries.items()))
