"""XML from outside as a plain tree, within bounds and with the line of every element.

Theory of operation. The standard library's expat, driven by handlers of ours that stop at the first thing
which a topology has no use for: an entity declaration (the bombs and the files that reach out of themselves
all need one), too many elements or attributes, too deep a nesting. No network or file is ever opened, since
no handler for external entities is set. A text that ends too early gives the tree up to there, and says so;
any other fault is refused by line.
"""

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from topotune.errors import InputFileError

MAX_ELEMENTS: Final = 50_000
MAX_DEPTH: Final = 64
MAX_ATTRIBUTES: Final = 64
MAX_VALUE: Final = 4096
MAX_GAP: Final = 2**20
"""From one ``>`` to the next. Expat takes time in the square of a tag's attributes."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ENDS_EARLY = {
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
    )
}


@dataclass(slots=True)
class Element:
    """One element, with the text that stands straight inside it, behind its last child."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class XmlTree:
    """A document.

    Attributes:
        root: its outermost element.
        cut_at_line: where the text ended before the root did; None for a whole document.
    """

    root: Element
    cut_at_line: int | None


def parse_xml(text: str, source: str, *, first_line: int = 1, max_elements: int = MAX_ELEMENTS) -> XmlTree:
    """Text → tree.

    Args:
        text: from the first ``<`` on.
        source: names it in errors.
        first_line: the line of the file on which the text starts.
        max_elements: bound on them.

    Raises:
        InputFileError: no XML, entity declarations, more than ``max_elements`` elements or 64 levels of
            them, more than 64 attributes of one element or 4096 characters of one value, control
            characters in one.
    """
    builder = _Builder(source, first_line, max_elements)
    parser = expat.ParserCreate("utf-8")  # the text is decoded already, whatever its declaration says
    parser.buffer_text = True
    builder.parser = parser
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.EntityDeclHandler = builder.refuse_entity
    cut = None
    _check_gaps(text, source, first_line)
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as problem:
        line = first_line + problem.lineno - 1
        if problem.code not in _ENDS_EARLY or builder.root is None:
            reason = expat.errors.messages.get(problem.code, "not well-formed")
            raise InputFileError(source, f"is no XML: {reason}", place=f"line {line}") from problem
        cut = line
    assert builder.root is not None
    return XmlTree(builder.root, cut)


def _check_gaps(text: str, source: str, first_line: int) -> None:
    at = 0
    while len(text) - at > MAX_GAP:
        end = text.rfind(">", at, at + MAX_GAP)
        if end < 0:
            line = first_line + text.count("\n", 0, at)
            problem = f"a tag or text is longer than {MAX_GAP} characters"
            raise InputFileError(source, problem, place=f"line {line}")
        at = end + 1


class _Builder:
    """What expat calls."""

    parser: expat.XMLParserType

    def __init__(self, source: str, first_line: int, max_elements: int) -> None:
        self.root: Element | None = None
        self._source = source
        self._first_line = first_line
        self._max_elements = max_elements
        self._open: list[Element] = []
        self._texts: list[str] = []  # of the innermost element, behind its last child
        self._num_elements = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._num_elements += 1
        if self._num_elements > self._max_elements:
            self._fail(f"has more than {self._max_elements} elements")
        if len(self._open) >= MAX_DEPTH:
            self._fail(f"elements are nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            self._fail(f"an element has {len(attributes)} attributes, more than {MAX_ATTRIBUTES}")
        for key, value in ((name, ""), *attributes.items()):
            if len(key) > MAX_VALUE or len(value) > MAX_VALUE:
                self._fail(f"a name or value has more than {MAX_VALUE} characters")
            if _CONTROL.search(key) or _CONTROL.search(value):
                self._fail(f"the attribute {key[:60]!r} has a control character")
        element = Element(name, attributes, self._line())
        self._texts.clear()
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, name: str) -> None:
        self._open.pop().text = "".join(self._texts)
        self._texts.clear()

    def characters(self, text: str) -> None:
        if self._open and not text.isspace():
            self._texts.append(text)

    def refuse_entity(self, name: str, *_rest: object) -> None:
        self._fail(f"declares the entity {name[:60]!r}, which no topology needs")

    def _line(self) -> int:
        return self._first_line + self.parser.CurrentLineNumber - 1

    def _fail(self, problem: str) -> NoReturn:
        raise InputFileError(self._source, problem, place=f"line {self._line()}")
