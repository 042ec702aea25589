"""For people: an algorithm's parameters, whatever the number of ranks, and where a plan is worth using."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from topotune.plan.grouping import groups_in_words
from topotune.units import format_bytes

SLOWER: Final = 0.98
"""Default / plan below which a plan is called slower."""

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


def worth_from_in_words(lost_bytes: Iterable[int], other_bytes: Iterable[int]) -> str:
    """From which size on the backend is worth using, where default rows lose to its dispatch.

    Dispatch takes as long at any size, so that what it costs falls with the size: what counts is the largest
    size that loses.

    Args:
        lost_bytes: sizes at which the default through the backend is slower than plain, at least one.
        other_bytes: further sizes of which it is known that dispatch does not count there, or that the plan
            leaves the default.
    """
    last = max(lost_bytes)
    beyond = [size for size in other_bytes if size > last]
    if not beyond:
        return "the backend is worth using at no larger size that was tried"
    return f"the backend is worth using from {format_bytes(min(beyond))} on"
