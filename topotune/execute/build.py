"""From an algorithm's name, as it stands in plans, to something that runs."""

from collections.abc import Sequence

from topotune.errors import UsageError
from topotune.execute.communicator import Communicator
from topotune.execute.executable import DefaultExecutable, Executable, ScheduleExecutable
from topotune.execute.native import COMPOSITIONS
from topotune.execute.parts import PartsExecutable, PartsThroughSharedMemory, ScheduledParts
from topotune.execute.shared_memory.allreduce import THROUGH_SHARED_MEMORY
from topotune.execute.stepwise import StepwiseExecutable
from topotune.plan.algorithms import DEFAULT, PART_SCHEDULES, SHARED_MEMORY_ALGORITHMS, check_params
from topotune.plan.model import Collective
from topotune.plan.nccl import NCCL
from topotune.schedule import catalog
from topotune.schedule.model import Params, PartCollective


def build_executable(algorithm: str, params: Params, communicator: Communicator) -> Executable:
    """What runs ``algorithm`` on ``communicator``; collective over its ranks, since it may join sub-groups.

    Args:
        algorithm: any of ``topotune.plan.algorithms.ALGORITHMS``.
        params: its parameters.
        communicator: of all ranks that take part.

    Raises:
        UsageError: no such algorithm, parameters it does not take, one that NCCL alone can run, or one that
            does not work where the communicator's messages are.
        RunError: a sub-group could not be joined.
        WrongResultError: the schedule is no allreduce.
    """
    _check(algorithm, params, communicator, "allreduce")
    if algorithm == DEFAULT:
        return DefaultExecutable(communicator)
    if algorithm == NCCL:
        raise UsageError(
            f"nccl {params['algo']} {params['proto']}: NCCL runs it by itself, nothing else can",
            hint="NCCL_ALGO and NCCL_PROTO, or NCCL_TUNER_PLUGIN, set before the job tell it how",
        )
    if algorithm in THROUGH_SHARED_MEMORY:
        if communicator.device.type != "cpu":
            raise UsageError(f"{algorithm}: works on memory of the host, and messages are on GPUs")
        return THROUGH_SHARED_MEMORY[algorithm](params, communicator)
    if algorithm in COMPOSITIONS:
        return COMPOSITIONS[algorithm](params, communicator)
    schedule = catalog.build(algorithm, params, communicator.size)
    if communicator.device.type != "cpu":
        return StepwiseExecutable(schedule, communicator)
    return ScheduleExecutable(schedule, communicator)


def build_parts_executable(
    collective: PartCollective,
    algorithm: str,
    params: Params,
    communicator: Communicator,
    part_of_rank: Sequence[int] | None = None,
) -> PartsExecutable:
    """What runs ``algorithm`` as ``collective``; collective over the communicator, since it may join groups.

    Args:
        collective: ``reduce_scatter`` or ``allgather``.
        algorithm: a schedule of parts, ``shm`` or ``shm_hierarchical``.
        params: its parameters.
        communicator: of all ranks that take part.
        part_of_rank: the number of the part that belongs to each rank of the communicator; None where they
            are numbered alike.

    Raises:
        UsageError: no such algorithm, or parameters it does not take.
        RunError: a sub-group could not be joined.
    """
    _check(algorithm, params, communicator, collective)
    if algorithm in PART_SCHEDULES:
        return ScheduledParts(collective, algorithm, params, communicator, part_of_rank)
    if algorithm not in SHARED_MEMORY_ALGORITHMS:
        raise UsageError(f"{algorithm}: the backend does that by itself, nothing else can")
    return PartsThroughSharedMemory(collective, algorithm, params, communicator, part_of_rank)


def _check(algorithm: str, params: Params, communicator: Communicator, collective: Collective) -> None:
    problem = check_params(algorithm, params, communicator.size, collective=collective)
    if problem is not None:
        raise UsageError(problem)
