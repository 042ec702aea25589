"""JSON documents from outside, read within bounds. Standard library only.

What comes from a file is hostile until it is read: its size, nesting, numbers and texts are bounded before
anything is built from them, and every refusal names the file, the place (``groups[0].allreduce[3].params``),
the value and what to do.
"""

from topotune.documents.kinds import (
    KINDS,
    Migrations,
    document_of,
    document_text,
    holds,
    json_schema,
    read_document,
    schema_of,
)
from topotune.documents.parsing import MAX_DEPTH, parse_json
from topotune.documents.reading import (
    MAX_DOCUMENT_BYTES,
    MAX_MEASUREMENT_BYTES,
    read_bytes,
    read_bytes_from_start,
)
from topotune.documents.value import MAX_INTEGER, MAX_RATE, MAX_TEXT, MIN_RATE, Value

__all__ = [
    "KINDS",
    "MAX_DEPTH",
    "MAX_DOCUMENT_BYTES",
    "MAX_INTEGER",
    "MAX_MEASUREMENT_BYTES",
    "MAX_RATE",
    "MAX_TEXT",
    "MIN_RATE",
    "Migrations",
    "Value",
    "document_of",
    "document_text",
    "holds",
    "json_schema",
    "parse_json",
    "read_bytes",
    "read_bytes_from_start",
    "read_document",
    "schema_of",
]
