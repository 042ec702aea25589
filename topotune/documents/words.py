"""Values of a document in words, as refusals name them."""

from typing import Any


def kind(raw: Any) -> str:
    """A JSON value in words, with the value where it is short."""
    match raw:
        case None:
            return "null"
        case bool():
            return "true" if raw else "false"
        case int() | float():
            return f"the number {raw}"
        case str():
            return f"the text {shown(raw)}"
        case list():
            return f"a list of {len(raw)}"
        case _:
            return "an object"


def shown(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(cut(text))


def cut(text: str) -> str:
    """A text of at most 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."
