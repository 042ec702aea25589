"""Variables of a launcher, read strictly: what is there and cannot be used is refused by name and value."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from topotune.documents import parse_json
from topotune.errors import InputFileError, UsageError
from topotune.probe.faults import shown

MAX_RANKS: Final = 2**20
MAX_NODES: Final = 2**16
_MAX_BYTES: Final = 2**20
_WHOLE: Final = re.compile(r"[0-9]{1,10}")
_HOST: Final = re.compile(
    r"[0-9A-Za-z_]([0-9A-Za-z_.-]{0,252})|\[?[0-9A-Fa-f:.]{2,45}(%[0-9A-Za-z_.-]{1,15})?\]?"
)
_INTERFACE: Final = re.compile(r"[^\s/:,=^]{1,15}")


class Variables:
    """The environment, as one launcher fills it.

    An empty variable counts as one that is not set, as job scripts leave them.

    Args:
        environment: all of it.
        launcher: how errors name the launcher.
    """

    def __init__(self, environment: Mapping[str, str], launcher: str) -> None:
        self._environment = environment
        self._launcher = launcher

    def has(self, *names: str) -> bool:
        """All of these are set."""
        return all(self.text(name) is not None for name in names)

    def text(self, name: str) -> str | None:
        """A variable, or None where it is not set or empty."""
        return self._environment.get(name) or None

    def whole(self, *names: str, maximum: int) -> int | None:
        """The first of these variables that is set, a whole number from 0 to ``maximum``; None if none is.

        Raises:
            UsageError: no such number.
        """
        name = next((name for name in names if self.has(name)), None)
        if name is None:
            return None
        text = self._environment[name]
        if not _WHOLE.fullmatch(text.strip()) or int(text) > maximum:
            self.refuse(f"{name}={shown(text)} is no whole number from 0 to {maximum}")
        return int(text)

    def need_whole(self, *names: str, maximum: int) -> int:
        """As `whole`, for what must be set.

        Raises:
            UsageError: none of these is set, or no such number.
        """
        value = self.whole(*names, maximum=maximum)
        if value is None:
            self.refuse_half(names[:1])
        return value

    def host(self, name: str) -> str | None:
        """A host name or address.

        Raises:
            UsageError: it cannot be one.
        """
        text = self.text(name)
        return None if text is None else self.check_host(text, name)

    def need_host(self, name: str) -> str:
        """As `host`, for what must be set.

        Raises:
            UsageError: it is not set, or cannot be a host.
        """
        host = self.host(name)
        if host is None:
            self.refuse_half([name])
        return host

    def check_host(self, text: Any, place: str) -> str:
        """A host name or address found at a place.

        Raises:
            UsageError: it cannot be one.
        """
        if not isinstance(text, str) or not _HOST.fullmatch(text):
            self.refuse(f"{place} has {shown(str(text))}, which is no host name or address")
        return text.removeprefix("[").removesuffix("]")

    def host_and_port(self, text: Any, place: str) -> tuple[str, int]:
        """``host:port``.

        Raises:
            UsageError: it is not of this form.
        """
        host, colon, port = str(text).rpartition(":")
        if not isinstance(text, str) or not colon or not port.isascii() or not port.isdigit():
            self.refuse(f"{place} has {shown(str(text))}, which is no host:port")
        if len(port) > 5 or not 0 < int(port) < 2**16:
            self.refuse(f"{place} has {shown(text)}: a port lies between 1 and 65535")
        return self.check_host(host, place), int(port)

    def port(self, *names: str) -> int | None:
        """The first of these variables that is set, as a TCP port.

        Raises:
            UsageError: it cannot be one.
        """
        value = self.whole(*names, maximum=2**16 - 1)
        if value == 0:
            self.refuse(f"{names[0]}=0: a port lies between 1 and 65535")
        return value

    def interface(self, text: Any, place: str) -> str:
        """The name of a network interface.

        Raises:
            UsageError: it cannot be one.
        """
        if not isinstance(text, str) or not _INTERFACE.fullmatch(text):
            self.refuse(f"{place} has {shown(str(text))}, which is no network interface")
        return text

    def json(self, name: str) -> Any:
        """What a variable's JSON says; None where it is not set.

        Raises:
            UsageError: it is no JSON, too large, or nested too deep.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_json(text.encode(errors="surrogateescape"), name, max_bytes=_MAX_BYTES).raw
        except InputFileError as error:
            where = f"{name}: {error.place}: " if error.place else f"{name}: "
            self.refuse(f"{where}{error.problem}")

    def hosts(self, value: Any, place: str) -> list[str]:
        """A list of different hosts, one or more.

        Raises:
            UsageError: it is none.
        """
        if not isinstance(value, list) or not value:
            self.refuse(f"{place} has {shown(str(value))}, which is no list of hosts")
        if len(value) > MAX_NODES:
            self.refuse(f"{place} has {len(value)} hosts, more than {MAX_NODES}")
        hosts = [self.check_host(host, place) for host in value]
        if len(set(hosts)) < len(hosts):
            twice = next(host for host in hosts if hosts.count(host) > 1)
            self.refuse(f"{place} has {shown(twice)} twice")
        return hosts

    def refuse(self, problem: str, *, hint: str | None = None) -> NoReturn:
        """Refuse what this launcher's variables say."""
        raise UsageError(
            f"started by {self._launcher}, but {problem}",
            hint=hint or "TOPOTUNE_LAUNCHER=alone ignores launchers",
        )

    def refuse_half(self, missing: Iterable[str]) -> NoReturn:
        """Refuse variables that are set without others that belong to them."""
        names = list(missing)
        self.refuse(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not set")


def check_below(
    variables: Variables, name: str, value: int, size_name: str, size: int, what: str = "a rank"
) -> None:
    """Refuse a number that is not below the size that belongs to it.

    Raises:
        UsageError: it is not.
    """
    if size < 1:
        variables.refuse(f"{size_name}={size}")
    if value >= size:
        variables.refuse(f"{name}={value} and {size_name}={size}: {what} lies between 0 and {size - 1}")
