"""The machines that topotune knows: the shipped profiles, by name, and those of the user's own files."""

import difflib
import os
from functools import cache
from importlib.resources.abc import Traversable

from topotune.documents import read_bytes
from topotune.errors import UsageError
from topotune.shipped import shipped_profile_files
from topotune.topology.profile import MAX_PROFILE_BYTES, MachineProfile, profile_from_bytes


def profile_names() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    return tuple(_shipped())


@cache
def shipped_profiles() -> tuple[MachineProfile, ...]:
    """All of them, by name."""
    return tuple(load_profile(name) for name in _shipped())


def load_profile(name_or_file: str | os.PathLike[str]) -> MachineProfile:
    """A shipped profile by its name or its cloud's (``dgx-h100``, ``Standard_ND96asr_v4``), or by its file.

    A text with a slash or the ending ``.json`` is a file of the user's own; any other is a name, in any case.

    Raises:
        UsageError: no such shipped profile.
        InputFileError: no such file, or one that is no profile.
    """
    text = os.fspath(name_or_file)
    if "/" in text or text.endswith(".json"):
        return profile_from_bytes(read_bytes(text, max_bytes=MAX_PROFILE_BYTES), text)
    shipped = _shipped()
    name = text.lower()
    if name in shipped:
        return profile_from_bytes(shipped[name].read_bytes(), f"{name}.json")
    sold_as = _by_instance_type()
    if name in sold_as:
        return sold_as[name]
    near = difflib.get_close_matches(name[:100], (*shipped, *sold_as), n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"there is no machine profile {text[:100]!r}",
        hint=f"{meant}shipped are {', '.join(shipped)}; a file of your own needs a slash, as ./mine.json",
    )


@cache
def _by_instance_type() -> dict[str, MachineProfile]:
    """Clouds' names in small letters → the profile of one such machine, not of a rack of them."""
    return {
        name.lower(): profile
        for profile in shipped_profiles()
        if profile.marks is not None and profile.num_nodes == 1
        for name in profile.marks.instance_types
    }


@cache
def _shipped() -> dict[str, Traversable]:
    return shipped_profile_files("machines")
