"""What verbs that run on ranks share: who started us, starting ranks, which network they use."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topotune.cli.narration import say, told_to_ranks
from topotune.cli.output import print_error
from topotune.errors import TopotuneError, UsageError
from topotune.launch.default_ranks import ON_PROCESSORS

if TYPE_CHECKING:
    from topotune.probe.membership import Membership


def say_network(line: str) -> None:
    """Say on stderr which network the ranks use."""
    say(f"network: {line}")


def say_note(line: str) -> None:
    """Say on stderr how the run went."""
    say(f"note: {line}")


def say_loss(error: TopotuneError) -> None:
    """Say which rank was lost, in a process that is about to be ended.

    Of ranks that topotune started itself the process that started them says it.
    """
    from topotune.launch.local_rank import RUN_ID

    if os.environ.get("TORCHELASTIC_RUN_ID") != RUN_ID:
        print_error(error)


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
    default_ranks: int = ON_PROCESSORS,
) -> Any:
    """Run one of the functions above on all ranks; rank 0's result, None in processes that do not speak.

    Args:
        work: the function.
        payload: what it is called with.
        launcher: what started this process.
        num_local_ranks: to start on each node, where no launcher starts them; None: what the platform says,
            or else ``default_ranks``.
        share_result: where a launcher starts one process on each node, all of them get the result, so that
            exit codes which follow from it are the same on all.
        default_ranks: where nobody says.
    """
    from topotune.launch import run_on_ranks

    with told_to_ranks():
        return run_on_ranks(
            work,
            payload,
            launcher,
            num_local_ranks=num_local_ranks,
            default_ranks=default_ranks,
            share_result=share_result,
            report=lambda line: print(line, file=sys.stderr),
        )


def on_launches(
    work: Callable[[dict[str, Any]], Any],
    payload: Callable[[int, list[Any]], dict[str, Any] | None],
    launcher: "Membership",
    num_launches: int,
    num_local_ranks: int | None,
    *,
    default_ranks: int = ON_PROCESSORS,
) -> list[Any]:
    """Run one of the functions above on all ranks several times, on fresh processes each time.

    Args:
        work: the function.
        payload: from the number of a launch and the results so far, what it is called with; None ends them.
        launcher: what started this process.
        num_launches: at most.
        num_local_ranks: as for `on_ranks`.
        default_ranks: as for `on_ranks`.

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
        default_ranks=default_ranks,
    )


def check_backend(name: str, *, asked_by: str | None = None) -> str:
    """Refuse a collective library that cannot be used here.

    Args:
        name: of the library.
        asked_by: what wants it, in words; None where the user named it by ``--backend``.

    Raises:
        UsageError: there is no such library, or no GPU here.
    """
    if name == "gloo":
        return name
    if name == "nccl":
        from topotune.probe.faults import Faults
        from topotune.probe.nvml import load_nvml, read_nvml

        reading = read_nvml(load_nvml(), Faults())
        if not reading.gpus:
            raise UsageError(
                f"{asked_by or '--backend nccl'}: no GPU was found on this machine: "
                + (reading.absent or "the driver knows none"),
                hint="--backend gloo tunes gradient exchange between CPUs"
                if asked_by is None
                else "compare it where it was made; topotune show prints what was measured there",
            )
        return name
    raise UsageError(f"--backend {name}: is neither gloo nor nccl")
