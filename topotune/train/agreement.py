"""One decision for all ranks: which plan a group uses, if any.

Theory of operation. Rank 0 of the group reads and validates the plan and publishes its canonical bytes, or
why there is none, through the group's store; every rank uses what it finds there. If there is a plan, the
ranks then tell each other what they are and see (their part of the fingerprint, the plan they were given
themselves) and find out by a shared-memory handshake who shares a node with whom. All ranks judge the same
facts with the same function, so the verdict of one rank is the verdict of all. Everything is bounded by the
group's timeout.

Groups inside a world that has agreed need to exchange nothing: what they need follows from what the world
agreed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from topotune import __version__
from topotune.errors import TopotuneError
from topotune.execute.fingerprint import RankFacts, combine_facts, local_facts
from topotune.links.messages import Messages
from topotune.links.same_node import same_node
from topotune.plan import (
    GroupShape,
    Plan,
    canonical_bytes,
    compare_fingerprints,
    find_group,
    plan_from_bytes,
)
from topotune.plan.unequal_shares import without_unequal_shares
from topotune.train.source import PlanSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """What all ranks of a group hold to be true; equal on all of them, but for ``warning``.

    Attributes:
        plan: the plan to use, or None for the default everywhere.
        outcome: one clause: ``plan /path used``, or why none is.
        warning: what this rank should tell the user; None on all ranks but one.
        global_ranks: of the group's ranks.
        node_of_rank: node number of each rank of the group; () where there is no plan.
    """

    plan: Plan | None
    outcome: str
    warning: str | None = None
    global_ranks: tuple[int, ...]
    node_of_rank: tuple[int, ...] = ()

    def among(self, global_ranks: Sequence[int]) -> "Agreement":
        """The same agreement as seen by a group inside this one."""
        if self.plan is None:
            return replace(self, warning=None, global_ranks=tuple(global_ranks))
        node_of = dict(zip(self.global_ranks, self.node_of_rank, strict=True))
        # An order is of the ranks of this group: it means nothing to some of them.
        order = self.plan.rank_order if tuple(global_ranks) == self.global_ranks else None
        return replace(
            self,
            plan=replace(self.plan, rank_order=order),
            warning=None,
            global_ranks=tuple(global_ranks),
            node_of_rank=tuple(node_of[rank] for rank in global_ranks),
        )

    def shape(self) -> GroupShape:
        """By what the group finds its tables; only where there is a plan."""
        return shape_of(self.global_ranks, self.node_of_rank)


def missing_table(agreement: Agreement, store: Store) -> str | None:
    """What to tell the user of a group for which a plan that was tuned for groups has no table.

    One rank of the job says it, once for each shape: whichever comes first.

    Args:
        agreement: of the group.
        store: of the group that this one is inside of.
    """
    plan = agreement.plan
    if plan is None or len(plan.groups) == 1 or len(agreement.global_ranks) == 1:
        return None
    shape = agreement.shape()
    if find_group(plan, shape) is not None or store.add(f"no table for {shape}", 1) != 1:
        return None
    ranks = ", ".join(map(str, agreement.global_ranks[:4])) + (", …" if shape.num_ranks > 4 else "")
    nodes = "one node" if shape.num_nodes == 1 else f"{shape.num_nodes} nodes"
    return (
        f"topotune: the plan has no table for groups like that of ranks {ranks} ({shape.num_ranks} ranks on "
        f"{nodes}, stride {shape.stride}): they use the default; topotune tune --groups tunes them"
    )


def shape_of(global_ranks: Sequence[int], node_of_rank: Sequence[int]) -> GroupShape:
    """The shape of a group with these global ranks on these nodes."""
    ranks_on_node = set(Counter(node_of_rank).values())
    strides = {after - before for before, after in pairwise(global_ranks)} or {1}
    return GroupShape(
        num_ranks=len(global_ranks),
        num_nodes=len(set(node_of_rank)),
        ranks_per_node=ranks_on_node.pop() if len(ranks_on_node) == 1 else 0,
        stride=max(0, strides.pop()) if len(strides) == 1 else 0,
    )


def agree(
    group: dist.ProcessGroup,
    store: Store,
    source: PlanSource | None,
    *,
    global_ranks: Sequence[int],
    timeout: timedelta,
) -> Agreement:
    """Agree on the plan of a group that is just being made. Collective over the group.

    Args:
        group: reaches the CPU memory of all ranks.
        store: of the group alone; nobody else writes to it.
        source: what this rank was given; only rank 0's is used, others must not contradict it.
        global_ranks: of the group's ranks, in their order.
        timeout: of every wait.

    Raises:
        RunError: a rank did not answer.
        torch.distributed.DistStoreError: rank 0 did not answer.
    """
    published = _publish(group.rank(), store, source, timeout)
    if published["plan"] is None:
        return Agreement(
            plan=None,
            outcome=published["outcome"],
            warning=published["warning"],
            global_ranks=tuple(global_ranks),
        )
    plan, said = _own_part(published, source, group)
    parts = Messages(group).gather(said)
    problems = _problems(parts)
    if plan is None or problems:
        return _refused(problems, published["source"], group, global_ranks)
    nodes = same_node(group)
    live = combine_facts([RankFacts(**part["facts"]) for part in parts], nodes.node_of_rank)
    verdict = compare_fingerprints(plan.fingerprint, live)
    if verdict.hard:
        return _refused(verdict.hard, published["source"], group, global_ranks)
    plan, left_out = on_these_hosts(plan, nodes.node_of_rank, same_hosts=verdict.same_hosts)
    notes = [*verdict.soft, *nodes.warnings, *left_out]
    warning = None
    if notes and group.rank() == 0:
        warning = f"topotune: plan {published['source']} is used, but {_few(notes)}"
    return Agreement(
        plan=plan,
        outcome=f"plan {published['source']} is used",
        warning=warning,
        global_ranks=tuple(global_ranks),
        node_of_rank=nodes.node_of_rank,
    )


def _own_part(
    published: dict[str, Any], source: PlanSource | None, group: dist.ProcessGroup
) -> tuple[Plan | None, dict[str, Any]]:
    """The plan, and what this rank tells all others; nothing is raised here, for they wait to hear it.

    Returns:
        None where this rank cannot read the plan; and ``version`` of topotune, ``problem`` in words or None,
        ``facts`` (None only beside a problem).
    """
    said: dict[str, Any] = {"version": __version__, "problem": None, "facts": None}
    plan = None
    try:
        plan = plan_from_bytes(published["plan"].encode(), published["source"])
        said["problem"] = _contradiction(source, plan)
        said["facts"] = asdict(_facts_for(plan, group))
    except TopotuneError as error:
        said["problem"] = error.message
    except Exception as error:
        said["problem"] = f"{type(error).__name__}: {error}"
    return plan, said


def _problems(parts: Sequence[dict[str, Any]]) -> list[str]:
    """What any rank has against the plan, by what all ranks said."""
    problems = [f"rank {rank}: {part['problem']}" for rank, part in enumerate(parts) if part["problem"]]
    # Two versions may make two schedules of one row, and ranks would wait for messages that never come.
    first = parts[0]["version"]
    other = next((rank for rank, part in enumerate(parts) if part["version"] != first), None)
    if other is not None:
        problems.append(f"rank {other} has topotune {parts[other]['version']}, rank 0 has {first}")
    return problems


def _refused(
    problems: Sequence[str], source: str, group: dist.ProcessGroup, global_ranks: Sequence[int]
) -> Agreement:
    """The agreement to use no plan."""
    outcome = f"plan {source} is not used ({_few(problems)})"
    warning = f"topotune: {outcome}: all ranks use the default" if group.rank() == 0 else None
    return Agreement(plan=None, outcome=outcome, warning=warning, global_ranks=tuple(global_ranks))


def on_these_hosts(
    plan: Plan, node_of_rank: Sequence[int], *, same_hosts: bool
) -> tuple[Plan, tuple[str, ...]]:
    """A plan without what is bound to other hosts, or to other places on them; and what that is, in words.

    Args:
        plan: of a group.
        node_of_rank: of its ranks, as it is here.
        same_hosts: whether the plan was made on these hosts.
    """
    left_out = []
    why_unordered = against_order(plan.rank_order, node_of_rank, same_hosts=same_hosts)
    if why_unordered is not None:
        # Algorithms and groups stay: they are as right on ranks as numbered, only slower perhaps.
        plan = replace(plan, rank_order=None)
        left_out.append(f"its rank_order {why_unordered}: ranks stand as numbered, which may be slower")
    if not same_hosts:
        plan, num_rows = without_unequal_shares(plan)
        if num_rows:
            sizes = "one range of sizes" if num_rows == 1 else f"{num_rows} ranges of sizes"
            left_out.append(f"its unequal shares are bound to its hosts: the default runs in {sizes}")
    return plan, tuple(left_out)


def against_order(
    order: Sequence[int] | None, node_of_rank: Sequence[int], *, same_hosts: bool
) -> str | None:
    """What forbids a plan's order here, in words; None if nothing does.

    The fingerprint does not say which rank lies on which node: an order that parts ranks of one node more
    often than their numbers do was made for another placement on the same hosts.

    Args:
        order: of the plan.
        node_of_rank: as it is here.
        same_hosts: whether the plan was made on these hosts.
    """
    if order is None:
        return None
    if not same_hosts:
        return "is bound to its hosts"
    if _num_crossings([node_of_rank[rank] for rank in order]) > _num_crossings(node_of_rank):
        return "parts ranks of one node, which lay otherwise when it was made"
    return None


def _num_crossings(nodes: Sequence[int]) -> int:
    """How often one of them is followed by another, round and round."""
    return sum(before != after for before, after in pairwise((*nodes, nodes[0])))


def _facts_for(plan: Plan, group: dist.ProcessGroup) -> RankFacts:
    """This rank's part of the fingerprint, for the kind of device that the plan is about."""
    cuda = torch.device("cuda")
    if (
        cuda in group._device_types
        and group._get_backend(cuda).name() == plan.fingerprint.hard.backend == "nccl"
    ):
        return local_facts("nccl", "cuda")
    return local_facts("gloo", "cpu")


def _publish(rank: int, store: Store, source: PlanSource | None, timeout: timedelta) -> dict[str, Any]:
    """Rank 0 reads the plan and tells everybody; the others hear it."""
    if rank != 0:
        store.wait(["plan"], timeout)
        heard: dict[str, Any] = json.loads(store.get("plan"))
        heard["warning"] = None
        if source is not None and heard["source"] is None and store.add("given elsewhere", 1) == 1:
            heard["outcome"] = f"rank 0 was given no plan, rank {rank} was: plan {source.text}"
            heard["warning"] = f"topotune: {heard['outcome']}: all ranks use the default"
        return heard
    told: dict[str, Any] = {"plan": None, "source": None, "outcome": "no plan was given", "warning": None}
    if source is not None:
        told["source"] = source.text
        problem, plan = _read(source)
        if plan is not None:
            told["plan"] = canonical_bytes(plan).decode()
        else:
            told["outcome"] = f"no plan is used ({problem})"
            told["warning"] = f"topotune: {told['outcome']}: all ranks use the default"
    store.set("plan", json.dumps(told))
    return told


def _read(source: PlanSource) -> tuple[str | None, Plan | None]:
    try:
        return None, source.read()
    except TopotuneError as error:
        return error.message, None
    except Exception as error:
        # The other ranks wait for what this one says, so whatever went wrong must be said.
        return f"{source.text}: {type(error).__name__}: {error}", None


def _contradiction(source: PlanSource | None, plan: Plan) -> str | None:
    """What this rank's own plan has against the one that rank 0 read; a rank that was given none agrees."""
    if source is None:
        return None
    problem, own = _read(source)
    if own is None:
        return problem
    if _digest(own) != _digest(plan):
        return f"plan {source.text} is another than that of rank 0"
    return None


def _digest(plan: Plan) -> bytes:
    return hashlib.sha256(canonical_bytes(plan)).digest()


def _few(texts: Sequence[str]) -> str:
    shown = "; ".join(texts[:3])
    return f"{shown}; and {len(texts) - 3} more" if len(texts) > 3 else shown
