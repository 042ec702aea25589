"""What a probe could not find out: gathered place by place, told as one warning per kind."""

_NUM_EXAMPLES = 3
_MAX_SHOWN = 60


class Faults:
    """Collects what went wrong while looking, so that a hundred devices with one problem give one line."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, None]] = {}

    def add(self, problem: str, place: str | None = None) -> None:
        """Note a problem.

        Args:
            problem: the kind, as the warning will name it.
            place: the file or device; None where the problem says it all.
        """
        places = self._places.setdefault(problem, {})
        if place is not None:
            places[place] = None

    def warnings(self) -> tuple[str, ...]:
        """One line for each kind of problem, in the order in which they were first met."""
        return tuple(_line(problem, tuple(places)) for problem, places in self._places.items())


def shown(text: str) -> str:
    """A text from outside, in quotes, on one line, cut to what a message can hold."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…")


def _line(problem: str, places: tuple[str, ...]) -> str:
    if not places:
        return problem
    more = len(places) - _NUM_EXAMPLES
    rest = f" and {more} more" if more > 0 else ""
    return f"{problem}: {', '.join(places[:_NUM_EXAMPLES])}{rest}"
