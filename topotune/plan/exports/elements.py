"""Bucket sizes of programs that count elements, not bytes."""

from collections.abc import Mapping
from typing import Final

from topotune.errors import UsageError

BYTES_OF: Final[Mapping[str, int]] = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Type of the gradients as they are reduced → bytes of one."""

MAX_ELEMENTS: Final = 2**40
"""A plan's largest cap is 2^20 MiB."""


def num_elements(num_bytes: int, dtype: str | None, *, usual: str) -> tuple[int, str]:
    """How many elements a bucket of so many bytes holds, at least one, and a sentence on what was taken.

    Args:
        num_bytes: of the bucket.
        dtype: as ``--dtype`` says it, or None for ``usual``.
        usual: of this program.

    Raises:
        UsageError: no such type.
    """
    taken = usual if dtype is None else dtype
    if taken not in BYTES_OF:
        raise UsageError(
            f"--dtype {taken[:40]}: no such type of gradients", hint=f"there are: {', '.join(BYTES_OF)}"
        )
    said = "" if dtype is not None else "; --dtype says another"
    sentence = f"the size counts elements of {BYTES_OF[taken]} bytes (gradients reduced as {taken}{said})"
    return max(1, num_bytes // BYTES_OF[taken]), sentence
