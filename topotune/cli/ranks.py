"""What verbs that run on ranks share: who started us, starting ranks, progress."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from topotune import __version__
from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.probe.membership import Membership


def say_network(line: str) -> None:
    """Say on stderr which network the ranks use."""
    print(f"network: {line}", file=sys.stderr)


def say_note(line: str) -> None:
    """Say on stderr how the run went."""
    print(f"note: {line}", file=sys.stderr)


def force_interface(names: str | None) -> None:
    """Have the ranks use what the user named, wherever they are started."""
    if names is not None:
        from topotune.interfaces.own import force

        force(names)


def find_launcher(num_local_ranks: int | None = None) -> "Membership":
    """What started this process; refuses a number of ranks that cannot be, or is the launcher's to say."""
    from topotune.launch import launcher_here

    return launcher_here(num_local_ranks)


def on_ranks(
    work: Callable[[dict[str, Any]], Any],
    payload: dict[str, Any],
    launcher: "Membership",
    num_local_ranks: int | None,
    *,
    share_result: bool = False,
) -> Any:
    """Run one of the functions above on all ranks; rank 0's result, None in processes that do not speak.

    Args:
        work: the function.
        payload: what it is called with.
        launcher: what started this process.
        num_local_ranks: to start on each node, where no launcher starts them; None: what the platform says,
            or else 2.
        share_result: where a launcher starts one process on each node, all of them get the result, so that
            exit codes which follow from it are the same on all.
    """
    from topotune.launch import run_on_ranks

    return run_on_ranks(
        work,
        payload,
        launcher,
        num_local_ranks=num_local_ranks,
        default_ranks=_DEFAULT_RANKS,
        share_result=share_result,
        report=lambda line: print(line, file=sys.stderr),
    )


def on_launches(
    work: Callable[[dict[str, Any]], Any],
    payload: Callable[[int, list[Any]], dict[str, Any] | None],
    launcher: "Membership",
    num_launches: int,
    num_local_ranks: int | None,
) -> list[Any]:
    """Run one of the functions above on all ranks several times, on fresh processes each time.

    Args:
        work: the function.
        payload: from the number of a launch and the results so far, what it is called with; None ends them.
        launcher: what started this process.
        num_launches: at most.
        num_local_ranks: as for `on_ranks`.

    Returns:
        Rank 0's result of each launch; None each in processes that are not rank 0.
    """
    from topotune.launch.fresh_processes import run_launches

    return run_launches(
        work,
        payload,
        launcher,
        num_launches=num_launches,
        num_local_ranks=num_local_ranks,
        default_ranks=_DEFAULT_RANKS,
    )


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A bar with the time left on rank 0's stderr; nothing where that is no terminal.

    What it yields takes the phase, the share done and the seconds left.
    """
    if not sys.stderr.isatty() or not find_launcher().speaks:
        yield lambda phase, done, seconds_left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.fields[left]:>12}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0, left="")

        def report(phase: str, done: float, seconds_left: float) -> None:
            bar.update(task, description=phase, completed=done, left=f"{seconds_left:.0f} s left")

        yield report


_DEFAULT_RANKS = 2


def check_backend(name: str) -> str:
    """Refuse a collective library that cannot be tuned here."""
    if name == "gloo":
        return name
    if name == "nccl":
        from topotune.probe.faults import Faults
        from topotune.probe.nvml import load_nvml, read_nvml

        reading = read_nvml(load_nvml(), Faults())
        if not reading.gpus:
            raise UsageError(
                "--backend nccl: no GPU was found on this machine: "
                + (reading.absent or "the driver knows none"),
                hint="--backend gloo tunes gradient exchange between CPUs",
            )
        raise UsageError(
            f"--backend nccl: topotune {__version__} passes NCCL's calls through and does not tune them yet",
            hint="--backend gloo",
        )
    raise UsageError(f"--backend {name}: is neither gloo nor nccl")
