"""Slurm: the srun step that this process is a task of, and lists of nodes in its compressed form.

A batch script, and a shell on a node, find most of the variables of a task as well (SLURM_PROCID is 0 there);
what they lack is a step of srun: SLURM_STEP_ID is not set, or is one of Slurm's reserved numbers.
"""

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Final, NoReturn

from topotune.probe.faults import shown
from topotune.probe.membership import Alone, PerRank
from topotune.probe.variables import MAX_NODES, MAX_RANKS, Variables, check_below

_RESERVED_STEPS: Final = range(0xFFFFFFF0, 2**32)  # interactive, batch, extern, …: not of srun
_FIRST_PORT: Final = 15_000
_NUM_PORTS: Final = 15_000  # below the ports that Linux gives to connections (from 32768)
_MAX_LIST: Final = 2**20
_MAX_PARTS: Final = 16  # of one name: r[1-2]n[1-8] has four
_PART: Final = re.compile(r"\[([^][]*)\]|([^][,]+)")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_TASKS: Final = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")


def in_allocation(variables: Variables) -> bool:
    """This process belongs to a job of Slurm."""
    return variables.has("SLURM_JOB_ID") or variables.has("SLURM_JOBID")


def in_step(variables: Variables) -> bool:
    """This process is a task that srun started."""
    if not variables.has("SLURM_PROCID"):
        return False
    step = variables.whole("SLURM_STEP_ID", "SLURM_STEPID", maximum=2**32 - 1)
    if step is None:
        return variables.has("SLURM_STEP_NODELIST") or variables.has("SLURM_STEP_NUM_NODES")
    return step not in _RESERVED_STEPS


def read_step(variables: Variables) -> PerRank | Alone:
    """The task of an srun step; a step of a single task (``srun --pty bash``) leaves it alone.

    Raises:
        UsageError: the variables are not whole, or contradict each other.
    """
    size_name = "SLURM_STEP_NUM_TASKS" if variables.has("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    world_size = variables.need_whole(size_name, "SLURM_NPROCS", maximum=MAX_RANKS)
    rank = variables.need_whole("SLURM_PROCID", maximum=MAX_RANKS)
    check_below(variables, "SLURM_PROCID", rank, size_name, world_size)
    if world_size == 1:
        return Alone()
    local_rank = variables.need_whole("SLURM_LOCALID", maximum=MAX_RANKS)
    node_index = variables.need_whole("SLURM_NODEID", maximum=MAX_NODES)
    nodes = _nodes(variables)
    num_nodes = variables.whole(
        "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", maximum=MAX_NODES
    )
    if num_nodes is None:
        num_nodes = len(nodes) or node_index + 1
    check_below(variables, "SLURM_NODEID", node_index, "SLURM_STEP_NUM_NODES", num_nodes, "a node's number")
    local_size = _local_size(variables, node_index, num_nodes, world_size)
    check_below(
        variables,
        "SLURM_LOCALID",
        local_rank,
        "tasks on this node",
        world_size if local_size is None else local_size,
    )
    job = variables.whole("SLURM_JOB_ID", "SLURM_JOBID", maximum=2**32) or 0
    step = variables.whole("SLURM_STEP_ID", "SLURM_STEPID", maximum=2**32 - 1) or 0
    address = variables.host("MASTER_ADDR")
    return PerRank(
        launcher="slurm",
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=local_size,
        node_index=node_index,
        num_nodes=num_nodes,
        master_address=address or _first_node(variables, nodes, num_nodes, node_index),
        master_port=variables.port("MASTER_PORT") or _FIRST_PORT + (job + step) % _NUM_PORTS,
        job=f"{job}.{step}",
    )


def read_allocation(variables: Variables, num_local_ranks: int | None) -> Alone:
    """A job's script or shell, outside of srun: alone where the job is one task, or one node and its ranks.

    Args:
        variables: of Slurm.
        num_local_ranks: what the user asked for.

    Raises:
        UsageError: several tasks or nodes: whether all of them, or this node, are meant is not clear.
    """
    num_nodes = variables.whole("SLURM_JOB_NUM_NODES", "SLURM_NNODES", maximum=MAX_NODES)
    num_tasks = variables.whole("SLURM_NTASKS", "SLURM_NPROCS", maximum=MAX_RANKS)
    if num_nodes != 1 or (num_tasks != 1 and num_local_ranks is None):
        _refuse_script(variables, num_nodes, num_tasks)
    return Alone()


def _refuse_script(variables: Variables, num_nodes: int | None, num_tasks: int | None) -> NoReturn:
    job = variables.text("SLURM_JOB_ID") or variables.text("SLURM_JOBID") or ""
    seen = [f"job {shown(job)}"]
    seen += [] if num_nodes is None else [f"{num_nodes} node{'s' * (num_nodes != 1)}"]
    seen += [] if num_tasks is None else [f"{num_tasks} task{'s' * (num_tasks != 1)}"]
    hint = "srun topotune … starts it on all tasks"
    hint += (
        "; --nproc-per-node N starts local ranks on this node"
        if num_nodes == 1
        else "; TOPOTUNE_LAUNCHER=alone keeps to this node"
    )
    variables.refuse(f"not by srun: this is the script or a shell of {', '.join(seen)}", hint=hint)


def expand_node_list(text: str) -> tuple[str, ...]:
    """Slurm's compressed node list → names, in its order: ``a[01-03,7],b2`` → a01, a02, a03, a7, b2.

    Numbers keep the width of the lower end of their range. Several brackets in one name (``r[1-2]n[1-8]``)
    count up from the right.

    Raises:
        ValueError: it is no such list, or has more than 65,536 names.
    """
    if len(text) > _MAX_LIST:
        raise ValueError(f"it has {len(text)} characters, more than {_MAX_LIST}")
    names: list[str] = []
    for parts in _items(text):
        for choice in product(*parts):
            if len(names) == MAX_NODES:
                raise ValueError(f"it has more than {MAX_NODES} nodes")
            names.append("".join(choice))
    return tuple(names)


def _items(text: str) -> Iterator[list[list[str]]]:
    """What stands between the commas, each as a list of parts, a part as all texts that it stands for."""
    at = 0
    parts: list[list[str]] = []
    while True:
        if at == len(text) or text[at] == ",":
            if not parts:
                raise ValueError(f"no name stands at character {at}")
            yield parts
            parts = []
            if at == len(text):
                return
            at += 1
            continue
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(f"the bracket at character {at} has no other")
        parts.append([match[2]] if match[2] is not None else list(_numbers(match[1])))
        if prod(map(len, parts)) > MAX_NODES or len(parts) > _MAX_PARTS:
            raise ValueError(f"it has more than {MAX_NODES} nodes, or names of more than {_MAX_PARTS} parts")
        at = match.end()


def _numbers(ranges: str) -> Iterator[str]:
    count = 0
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"[{ranges[:40]}] is no list of numbers and ranges")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise ValueError(f"[{text}] runs downwards")
        count += high - low + 1
        if count > MAX_NODES:
            raise ValueError(f"it has more than {MAX_NODES} nodes")
        yield from (f"{number:0{len(match[1])}d}" for number in range(low, high + 1))


def _nodes(variables: Variables) -> tuple[str, ...]:
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        text = variables.text(name)
        if text is not None:
            try:
                nodes = expand_node_list(text)
            except ValueError as problem:
                variables.refuse(f"{name}={shown(text)} is no list of nodes: {problem}")
            return tuple(variables.check_host(node, name) for node in nodes)
    return ()


def _first_node(variables: Variables, nodes: tuple[str, ...], num_nodes: int, node_index: int) -> str:
    """The node of task 0: the first of the step's."""
    hint = "export MASTER_ADDR with the host name of task 0's node"
    if num_nodes == 1:
        return "127.0.0.1"
    if not nodes:
        variables.refuse("SLURM_STEP_NODELIST is not set", hint=hint)
    if len(nodes) != num_nodes:
        variables.refuse(
            f"SLURM_STEP_NODELIST has {len(nodes)} nodes and SLURM_STEP_NUM_NODES={num_nodes}", hint=hint
        )
    here = variables.text("SLURMD_NODENAME")
    if here is not None and here != nodes[node_index]:
        where = f"node {nodes.index(here)}" if here in nodes else "not"
        variables.refuse(
            f"SLURMD_NODENAME={shown(here)} is {where} in SLURM_STEP_NODELIST, and SLURM_NODEID={node_index}",
            hint=hint,
        )
    return nodes[0]


def _local_size(variables: Variables, node_index: int, num_nodes: int, world_size: int) -> int | None:
    """Tasks on this node, by ``SLURM_STEP_TASKS_PER_NODE`` (``4(x2),3``: two nodes of 4, one of 3)."""
    text = variables.text("SLURM_STEP_TASKS_PER_NODE")
    if text is None:
        return None
    counts: list[int] = []
    for item in text.split(","):
        match = _TASKS.fullmatch(item)
        if match is None or len(counts) + int(match[2] or 1) > MAX_NODES:
            variables.refuse(f"SLURM_STEP_TASKS_PER_NODE={shown(text)} is no list of numbers of tasks")
        counts += [int(match[1])] * int(match[2] or 1)
    if (len(counts), sum(counts)) != (num_nodes, world_size):
        variables.refuse(
            f"SLURM_STEP_TASKS_PER_NODE={shown(text)} has {sum(counts)} tasks on {len(counts)} nodes, "
            f"and the step {world_size} on {num_nodes}"
        )
    return counts[node_index]
