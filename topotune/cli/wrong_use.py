"""What the command line's parser refuses, in the words of every other error; and hints for all of them."""

import re
from collections.abc import Sequence
from typing import Final

from typer.exceptions import TyperException

from topotune.errors import InputFileError, OutputFileError, RunError, TopotuneError, UsageError

_INVALID: Final = re.compile(r"Invalid value for '([^']+)': (.*)")
_WORDS: Final = (
    (re.compile(r"Input should be a valid integer.*"), "is no whole number"),
    (re.compile(r"Input should be a valid number.*"), "is no number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"is less than \1"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"is more than \1"),
)
"""Of the parser, and ours."""


def wrong_use(problem: TyperException, arguments: Sequence[str]) -> UsageError:
    """The error that says what the parser refused: which option, with its value; and where to read on.

    Args:
        problem: of the parser.
        arguments: of the command line.
    """
    message = problem.format_message().rstrip(".")
    found = _INVALID.fullmatch(message)
    if found is not None:
        option, why = found[1].split(" / ")[-1], found[2]
        for pattern, words in _WORDS:
            why = pattern.sub(words, why)
        message = f"{option} {_value(option, arguments)}: {why}"
    unknown_verb = message.startswith("No such command")
    return UsageError(message, hint=where_to_read([] if unknown_verb else arguments))


_USUAL_HINTS: Final[tuple[tuple[type[TopotuneError], str], ...]] = (
    (InputFileError, "make the file anew with what wrote it, or mend what was changed by hand"),
    (OutputFileError, "name another place, or clear this one"),
    (RunError, "-v says what was done before, a line each; --debug where it failed"),
)
"""For errors of these classes that bring none of their own, the first that fits."""


def usual_hint(error: TopotuneError, arguments: Sequence[str]) -> str:
    """What to do about an error that does not say it itself.

    Args:
        error: without a hint.
        arguments: of the command line.
    """
    for kind, hint in _USUAL_HINTS:
        if isinstance(error, kind):
            return hint
    return where_to_read(arguments)


def where_to_read(arguments: Sequence[str]) -> str:
    """For a hint where nothing better is known: the help of the verb."""
    verb = next((one for one in arguments if not one.startswith("-")), None)
    return "topotune alone says what there is" if verb is None else f"topotune {verb} --help"


def _value(option: str, arguments: Sequence[str]) -> str:
    """What an option was given, the last time that it was."""
    value = ""
    for index, argument in enumerate(arguments):
        name, equals, given = argument.partition("=")
        if name == option:
            value = given if equals else "".join(arguments[index + 1 : index + 2])
    return value
