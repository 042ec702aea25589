"""Names of a package that are imported when they are first asked for (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__``.

    Args:
        package: its ``__name__``.
        homes: name → the module that has it, ``module:name`` where it has another name there, or ``module:``
            where it is the module itself.
    """

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, colon, attribute = home.partition(":")
        found = import_module(module)
        return found if colon and not attribute else getattr(found, attribute or name)

    return __getattr__
