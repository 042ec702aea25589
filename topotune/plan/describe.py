"""An algorithm's parameters for people: short, whatever the number of ranks."""

from collections.abc import Mapping
from typing import Any, Final

from topotune.plan.grouping import groups_in_words

_SHOWN_WEIGHTS: Final = 8


def params_in_words(params: Mapping[str, Any]) -> dict[str, str]:
    """Name → words; well-formed parameters of a plan, sorted by name.

    Groups of many ranks and trees are counted, not listed; what follows from the rest is left out.
    """
    words = {}
    for name, value in sorted(params.items()):
        if name == "groups":
            words[name] = groups_in_words(value)
        elif name in ("down", "up"):
            words["trees"] = str(len(value))
        elif name == "weights":
            if len(set(value)) > 1:
                more = " …" if len(value) > _SHOWN_WEIGHTS else ""
                words[name] = " ".join(map(str, value[:_SHOWN_WEIGHTS])) + more
        else:
            words[name] = str(value)
    return words
