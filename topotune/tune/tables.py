"""The tables beside the world's allreduce: other collectives, and groups of a job's mesh.

Theory of operation. A table is tuned as the world's allreduce is, by the same phases and the same rules, only
that every rank measures on the group that it is in. All groups of a set exchange at the same time, as they do
in a job whose groups carry the same step; a sample is the time from the common start to the last end on any
rank of any group, so what they take from each other is in it, and the slowest group decides. One table then
holds for all shapes of the set.

Rank 0 drives: a command to a table goes as part of a command to the world's station. How their rows are
chosen stands in `topotune.tune.table_rows`.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from topotune.errors import WrongResultError
from topotune.execute import Communicator
from topotune.execute.check import check_parts_exact
from topotune.plan import GroupShape, Plan, Row, find_group, find_row
from topotune.plan.model import Collective
from topotune.train import ProcessGroupTopotune
from topotune.train.agreement import shape_of
from topotune.tune.calls import Calls
from topotune.tune.compare import OnCompared, compare_plan, row_to_json
from topotune.tune.journal import TableName
from topotune.tune.mesh import GroupSet, read_groups
from topotune.tune.options import CompareOptions
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.sampling import Sampling
from topotune.tune.timing import Station, TorchBench
from topotune.tune.trial import DEFAULT, DEFAULTS, DISPATCHED, PLANNED, Candidate, Condition
from topotune.tune.workload import python_until_done, python_until_waited
from topotune.tune.world import World
from topotune.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table to be tuned.

    Attributes:
        number: counts the tables of a run from 1.
        collective: that it is for.
        group_set: the groups that exchange at the same time; one group of all ranks is the world.
        shapes: of the groups, those that no table before has.
        station: this rank's.
    """

    number: int
    collective: Collective
    group_set: GroupSet
    shapes: tuple[GroupShape, ...]
    station: "TableStation"

    @property
    def name(self) -> str:
        """Of its groups, for people."""
        return self.group_set.name

    @property
    def title(self) -> str:
        """Collective and groups, for people."""
        return f"{self.collective}, {self.name}"

    @property
    def is_of_world(self) -> bool:
        """Whether its one group is the world."""
        return len(self.group_set.groups) == 1

    @property
    def record_name(self) -> TableName:
        """What its records in a journal say."""
        return TableName(number=self.number, collective=self.collective, group=self.name)

    def to_json(self) -> dict[str, Any]:
        """What a journal says of it: its name, and its groups' ranks."""
        return {**self.record_name.to_json(), "ranks": [list(group) for group in self.group_set.groups]}


class TableStation(Station):
    """One rank's part in the measurements of a table.

    Args:
        main: the world's station, whose clock is used.
        world: all ranks.
        own: this rank's group, with a raw one of the same ranks, and a private communicator of them.
        groups: the ranks of each group of the set.
        collective: what is timed.
    """

    def __init__(
        self,
        main: Station,
        world: World,
        own: tuple[ProcessGroupTopotune, dist.ProcessGroup, Communicator],
        groups: Sequence[Sequence[int]],
        collective: Collective,
    ) -> None:
        planned, raw, private = own
        nodes, fresh_raw = world.nodes.node_of_rank, partial(world.fresh_raw, groups)
        super().__init__(planned, raw, world.private, nodes, fresh_raw)
        self.clock = main.clock
        self._private = private
        self._collective: Collective = collective
        self._part = torch.zeros(0)

    def _check(self, arm: Candidate, message_bytes: int, limit_s: float | None) -> dict[str, Any]:
        if self._collective == "allreduce":
            found = super()._check(arm, message_bytes, limit_s)
        else:
            found = self._check_parts(arm, message_bytes, limit_s)
        # Every group has checked its own: what is wrong in one is wrong with the candidate.
        problems = self.messages.gather(found["problem"])
        return {**found, "problem": next(filter(None, problems), None)}

    def _check_parts(self, arm: Candidate, message_bytes: int, limit_s: float | None) -> dict[str, Any]:
        before = self._planned.calls[self._collective, arm.algorithm]
        calls = Calls(self._planned)
        self._build((arm,), (limit_s,), calls)
        self._choose(arm, limit_s)
        calls_s: list[float] = []

        def exchange(whole: torch.Tensor, part: torch.Tensor) -> None:
            began_s = time.perf_counter()
            calls.make(arm, limit_s, partial(self._exchange, self._planned, whole, part))
            calls_s.append(time.perf_counter() - began_s)

        problem = None
        num_elements = len(self._parts(self._buffer(message_bytes))[1])
        try:
            for _ in range(2):
                check_parts_exact(exchange, self._collective, self._private, num_elements, arm.label)
        except WrongResultError as error:
            problem = error.message
        calls_s += [math.inf] * (2 - len(calls_s))
        by_rank = self.messages.gather_numbers(*calls_s, *calls.outcome)
        broken = self._settle(calls, [numbers[-2:] for numbers in by_rank])
        if broken is not None:
            return {"problem": None, "call_s": None, "broken": broken[1]}
        if arm != PLANNED and self._planned.calls[self._collective, arm.algorithm] == before:
            problem = problem or f"it does not take messages of {format_bytes(message_bytes)}"
        call_s = min(max(call_s) for call_s in list(zip(*by_rank, strict=True))[:-2])
        return {"problem": problem, "call_s": None if math.isinf(call_s) else call_s, "broken": None}

    def _choose(self, arm: Candidate, limit_s: float | None) -> None:
        if arm in DEFAULTS and arm != DISPATCHED:
            return
        override: tuple[str, dict[str, Any]] | None = (arm.algorithm, arm.params)
        if arm == PLANNED:
            override = None
        elif arm == DISPATCHED:
            override = (DEFAULT.algorithm, {})
        self._planned.set_override(self._collective, override)
        self._planned.call_limit = None if limit_s is None else timedelta(seconds=limit_s)

    def _build_arm(self, arm: Candidate) -> None:
        self._planned.build_override(self._collective)

    def _call(self, arm: Candidate, tensor: torch.Tensor, condition: Condition, batch: int) -> None:
        if self._collective == "allreduce":
            super()._call(arm, tensor, condition, batch)
            return
        group = self._group_of(arm)
        whole, part = self._parts(tensor)
        if condition == "idle":
            self._exchange(group, whole, part)
            return
        backward = self._prepared(batch) if condition == "backward" else None
        work = self._exchange(group, whole, part, is_async=True)
        if backward is not None:
            backward.run()
        elif self._collective == "reduce_scatter":
            python_until_waited(work)
        else:
            python_until_done(work)
        work.wait()

    def _exchange(
        self, group: dist.ProcessGroup, whole: torch.Tensor, part: torch.Tensor, *, is_async: bool = False
    ) -> Any:
        if self._collective == "reduce_scatter":
            return dist.reduce_scatter_single(part, whole, group=group, async_op=is_async)
        return dist.all_gather_single(whole, part, group=group, async_op=is_async)

    def _buffer(self, message_bytes: int) -> torch.Tensor:
        """A message has an element for every rank at least."""
        return super()._buffer(max(message_bytes, self._planned.size() * ELEMENT_BYTES))

    def _parts(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As many whole parts as fit in a message, and room for this rank's."""
        size = self._planned.size()
        length = part_elements(tensor.numel() * ELEMENT_BYTES, size)
        if len(self._part) < length:
            self._part = torch.empty(length).zero_()
        return tensor[: length * size], self._part[:length]


class TableBench(TorchBench):
    """Rank 0's side of a table: commands go through the world's bench, the clock is the table's own."""

    def __init__(self, main: TorchBench, table: Table, *, passed_s: float = 0.0) -> None:
        super().__init__(table.station, started_s=time.perf_counter() - passed_s)
        self._main = main
        self._key = table.number - 1

    def command(self, command: Mapping[str, Any]) -> Any:
        """Have all ranks carry out a command on the groups of the table."""
        return self._main.command({"do": "table", "table": self._key, "command": dict(command)})


def make_tables(
    world: World, main: Station, groups: str | None, collectives: Sequence[Collective]
) -> tuple[Table, ...]:
    """The tables that a run has beside the world's allreduce, ready to be measured. Collective.

    Args:
        world: all ranks.
        main: this rank's station of the world.
        groups: of the job, beside the world; as `read_groups` takes them.
        collectives: for which each has a table.

    Raises:
        UsageError: the groups are not of these ranks.
    """
    everyone = world_set(world.num_ranks)
    asked = () if groups is None else read_groups(groups, world.num_ranks)
    node_of_rank = world.nodes.node_of_rank
    made: list[Table] = []
    known: set[tuple[Collective, GroupShape]] = {("allreduce", shape_of(everyone.groups[0], node_of_rank))}
    if world.num_ranks == 1:
        return ()
    for one in (everyone, *asked):
        shapes = tuple(
            dict.fromkeys(shape_of(group, [node_of_rank[rank] for rank in group]) for group in one.groups)
        )
        wanted = [name for name in collectives if not {(name, shape) for shape in shapes} <= known]
        if not wanted:
            continue
        own = _join(world, one)
        for collective in wanted:
            new = tuple(shape for shape in shapes if (collective, shape) not in known)
            known.update((collective, shape) for shape in new)
            station = TableStation(main, world, own, one.groups, collective)
            made.append(
                Table(
                    number=len(made) + 1,
                    collective=collective,
                    group_set=one,
                    shapes=new,
                    station=station,
                )
            )
    main.serve("table", lambda command: made[command["table"]].station.do(command["command"]))
    return tuple(made)


def world_set(num_ranks: int) -> GroupSet:
    """The one group of all ranks."""
    return GroupSet(name="world", groups=(tuple(range(num_ranks)),))


def _join(world: World, one: GroupSet) -> tuple[ProcessGroupTopotune, dist.ProcessGroup, Communicator]:
    """This rank's group of the set, a raw one, and a private one. Collective over all ranks."""
    if len(one.groups) == 1:
        return world.planned, world.raw, world.private
    planned, raw = world.fresh_planned(one.groups), world.fresh_raw(one.groups)
    private = world.private.subgroup(one.group_of(world.rank), f"table {one.name}")
    assert private is not None
    return planned, raw, private


def table_budget_s(budget_s: float, num_tables: int) -> float:
    """What each table of a run may take, the world's allreduce being one more."""
    return budget_s / (num_tables + 1)


def part_elements(message_bytes: int, num_ranks: int) -> int:
    """Elements of a rank's part of a timed message: as many whole parts as fit, one element at least."""
    return max(1, message_bytes // ELEMENT_BYTES // num_ranks)


def compare_tables(
    tables: Sequence[Table],
    bench: TorchBench,
    plan: Plan,
    options: CompareOptions,
    *,
    on_compared: OnCompared = lambda _name, _found: None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Each table of a plan against the default, as JSON; and warnings. On rank 0, while the others follow.

    Args:
        tables: as `make_tables` gives them; what the plan has no table for is left out.
        bench: of the world.
        plan: in use.
        options: of one table: with its share of the budget.
        on_compared: gets what was measured of a table, with its samples, and the number of the table.

    Raises:
        WrongResultError: the plan computes something else.
    """
    compared: list[dict[str, Any]] = []
    warnings: list[str] = []
    for key, table in enumerate(tables):
        what = table.title
        groups = [find_group(plan, shape) for shape in table.shapes]
        rows_of_shapes: list[tuple[Row, ...] | None] = [
            None if group is None else getattr(group, table.collective) for group in groups
        ]
        rows = rows_of_shapes[0]
        if rows is None or None in rows_of_shapes:
            warnings.append(f"{what}: the plan has no table for such groups")
            continue
        compared_rows, found_warnings = compare_plan(
            Sampling(bench=TableBench(bench, table), rng=np.random.default_rng([options.seed, key])),
            rows,
            options,
            algorithm_at=partial(_algorithm_at, rows),
            on_compared=partial(on_compared, str(table.number)),
        )
        warnings += [f"{what}: {warning}" for warning in found_warnings]
        compared.append(
            {
                "collective": table.collective,
                "group": table.name,
                "num_ranks": table.shapes[0].num_ranks,
                "rows": [row_to_json(row) for row in compared_rows],
            }
        )
    return compared, warnings


def _algorithm_at(rows: tuple[Row, ...], message_bytes: int) -> str:
    return find_row(rows, message_bytes).algorithm
