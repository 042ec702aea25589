"""Bounded reading below a root folder: the live machine, or a captured copy of its /sys, /proc and /etc.

Theory of operation. All paths are relative to the root and every link on the way is followed here, one
component at a time, as a process with that root would see it: an absolute link starts again at the root, and
a link that climbs above the root is refused. The file itself is then opened without following anything, so
that a captured tree leads to nothing but itself. Pipes and devices are not opened, and no more is read than
was asked for.

What is absent is ordinary (machines differ) and gives None. What is there and cannot be used is noted in
`faults`.
"""

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from topotune.errors import UsageError
from topotune.probe.faults import Faults, shown

MAX_ATTRIBUTE_BYTES: Final = 4096  # a page: the most that the kernel itself puts into a sysfs attribute
MAX_ENTRIES: Final = 16_384
_MAX_LINKS: Final = 40  # as the kernel's own path walk

_ABSENT = {errno.ENOENT, errno.ENOTDIR}
# How drivers say "I do not know": `speed` of an interface that is down, attributes of a device that sleeps.
_NOT_KNOWN = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENODATA, errno.ENXIO}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

T = TypeVar("T")


class Tree:
    """The files below a root folder.

    Attributes:
        live: the root is that of the running machine.
        faults: what was there and could not be used.

    Raises:
        UsageError: the root does not exist, is no folder, cannot be read, or holds neither sys nor proc.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)
        self._folders: dict[str, str | None] = {}
        self.faults = Faults()
        hint = "give the folder that holds the captured sys, proc and etc (or / for this machine)"
        try:
            status = os.stat(self._root)
            names = os.listdir(self._root)
        except FileNotFoundError as problem:
            raise UsageError(f"root folder {shown(str(root))} does not exist", hint=hint) from problem
        except NotADirectoryError as problem:
            raise UsageError(f"root {shown(str(root))} is no folder", hint=hint) from problem
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise UsageError(
                f"root folder {shown(str(root))} cannot be read: {reason}", hint=hint
            ) from problem
        self.live = os.path.samestat(status, os.stat("/"))
        if not any(self.children(name) for name in ("sys", "proc") if name in names):
            state = "is empty" if not names else "holds neither a sys nor a proc folder with anything in it"
            raise UsageError(f"root folder {shown(str(root))} {state}", hint=hint)

    def text(self, path: str, *, max_bytes: int = MAX_ATTRIBUTE_BYTES, cut: bool = False) -> str | None:
        """The text of a file without white space at its end, or None.

        Args:
            path: relative to the root.
            max_bytes: a longer file is left out, and noted.
            cut: take the first ``max_bytes`` of a longer file, up to the end of a line.
        """
        data = self._bytes(path, max_bytes + 1)
        if data is None:
            return None
        if len(data) > max_bytes:
            if not cut:
                self.faults.add(f"left out, larger than {max_bytes} bytes", f"/{path}")
                return None
            data = data[: data.rfind(b"\n") + 1]
        try:
            text: str | None = data.decode("utf-8").rstrip("\0 \t\n")
        except UnicodeDecodeError:
            text = None
        if text is None or _CONTROL.search(text):
            self.faults.add("left out, holds no text", f"/{path}")
            return None
        return text

    def value(self, path: str, parse: Callable[[str], T | None]) -> T | None:
        """What a parser makes of a file; None where it is absent or does not say.

        Args:
            path: relative to the root.
            parse: raises ValueError for what it does not understand, which is noted.
        """
        text = self.text(path)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError:
            self.faults.add("left out, not understood", f"/{path} says {shown(text)}")
            return None

    def data(self, path: str, *, max_bytes: int) -> bytes | None:
        """The first bytes of a file that holds no text, as far as they may be read; None where it is absent.

        Args:
            path: relative to the root.
            max_bytes: what lies beyond is left out.
        """
        return self._bytes(path, max_bytes)

    def children(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted; none where it is absent."""
        real = self.resolve(path)
        if real is None:
            return ()
        try:
            names = os.listdir(self._at(real))
        except OSError as problem:
            if problem.errno not in _ABSENT:
                self._cannot_read(path, problem)
            return ()
        readable = sorted(name for name in names if name.isprintable())
        if len(readable) < len(names):
            self.faults.add("left out, names that are no text", f"/{path}")
        if len(readable) > MAX_ENTRIES:
            self.faults.add(f"left out what lies beyond the first {MAX_ENTRIES} entries", f"/{path}")
        return tuple(readable[:MAX_ENTRIES])

    def has(self, path: str) -> bool:
        """There is something at this path (also what cannot be read)."""
        return self.resolve(path) is not None

    def resolve(self, path: str) -> str | None:
        """Where a path really leads, relative to the root, all links followed; None where nothing is."""
        if path not in self._folders:
            self._folders[path] = self._walk(path)
        return self._folders[path]

    def _walk(self, path: str) -> str | None:
        pending = deque(path.split("/"))
        at: list[str] = []
        num_links = 0
        while pending:
            part = pending.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if not at:
                    self.faults.add("left out, a link that leads outside the root folder", f"/{path}")
                    return None
                at.pop()
                continue
            here = "/".join((*at, part))
            try:
                target = os.readlink(self._at(here))
            except OSError as problem:
                if problem.errno == errno.EINVAL:  # no link
                    at.append(part)
                    continue
                if problem.errno not in _ABSENT:
                    self._cannot_read(path, problem)
                return None
            num_links += 1
            if num_links > _MAX_LINKS:
                self.faults.add("left out, a link that leads in circles", f"/{path}")
                return None
            if target.startswith("/"):
                at.clear()
            pending.extendleft(reversed(target.split("/")))
        return "/".join(at)

    def _bytes(self, path: str, max_bytes: int) -> bytes | None:
        folder, _, name = path.rpartition("/")
        real = self.resolve(folder)
        if real is None:
            return None
        real = f"{real}/{name}"
        try:
            mode = os.lstat(self._at(real)).st_mode
            if stat.S_ISLNK(mode):
                target = self.resolve(path)
                if target is None:
                    return None
                real = target
                mode = os.lstat(self._at(real)).st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
                self.faults.add(f"left out, {kind} where a file belongs", f"/{path}")
                return None
            return _read(self._at(real), max_bytes)
        except OSError as problem:
            if problem.errno not in _ABSENT | _NOT_KNOWN:
                self._cannot_read(path, problem)
            return None

    def _at(self, real: str) -> str:
        return os.path.join(self._root, real.lstrip("/"))

    def _cannot_read(self, path: str, problem: OSError) -> None:
        self.faults.add(f"cannot be read ({problem.strerror})", f"/{path}")


def _read(path: str, max_bytes: int) -> bytes:
    # Plain descriptors: a buffered file object costs several times as much, and a probe reads a thousand
    # attributes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        parts = []
        left = max_bytes
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
