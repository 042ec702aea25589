"""A GPU driver's library, asked question by question through its Python bindings.

No library, no driver, or a driver too old for a question are ordinary: the answer is then not known.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from topotune.probe.kernel_text import parse_word
from topotune.probe.pci import normalise_address

_MAX_NAME: Final = 200


@contextmanager
def opened(
    start: Callable[[], object], stop: Callable[[], object], failure: type[Exception]
) -> Iterator[str | None]:
    """Start a library for the length of a block, which gets why it cannot be asked, or None where it can.

    Args:
        start: function of its bindings.
        stop: likewise; called at the end of the block.
        failure: what ``start`` raises where there is no driver.
    """
    try:
        start()
    except failure as problem:
        yield str(problem)
        return
    try:
        yield None
    finally:
        stop()


@dataclass(frozen=True)
class DriverLibrary:
    """The bindings of a library that was started.

    Attributes:
        bindings: a module, or what stands for it.
        failure: what they raise where a device or driver has no answer.
        not_found: the kind of ``failure`` by which the whole driver lacks a question; None where that is not
            told apart.
        unanswered: questions that nobody here can answer: asked once, not once for every link.
    """

    bindings: Any
    failure: type[Exception]
    not_found: type[Exception] | None = None
    unanswered: set[str] = field(default_factory=set)

    def ask(self, question: str, *arguments: Any) -> Any | None:
        """The answer of one function; None where these bindings, this driver or this device have none."""
        if question in self.unanswered:
            return None
        function: Callable[..., Any] | None = getattr(self.bindings, question, None)
        if function is None:  # bindings older than the question
            self.unanswered.add(question)
            return None
        try:
            return function(*arguments)
        except (self.failure, UnicodeDecodeError) as problem:
            if self.not_found is not None and isinstance(problem, self.not_found):
                self.unanswered.add(question)
            return None

    def word(self, question: str, *arguments: Any) -> str | None:
        """A name or version; None where there is none that can be shown."""
        return word_of(self.ask(question, *arguments))


def word_of(answer: Any) -> str | None:
    """A name out of an answer, as bytes or text; None for anything that is none."""
    if isinstance(answer, bytes):
        answer = answer.decode("utf-8", "replace")
    if not isinstance(answer, str) or not answer.isprintable() or len(answer) > _MAX_NAME:
        return None
    return parse_word(answer)


def address_of(answer: Any) -> str | None:
    """A PCI address out of an answer, spelled as the kernel spells them; None for anything that is none."""
    if isinstance(answer, bytes):
        answer = answer.decode("ascii", "replace")
    address = normalise_address(answer) if isinstance(answer, str) else None
    # A virtual machine's driver answers with all ones for what it must not show.
    return None if address is None or address.startswith("ffff") else address
