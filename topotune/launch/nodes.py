"""One run over several nodes, each with a process of a per-node launcher that starts the node's ranks.

Theory of operation. Node 0 serves a store, at which these processes (*agents*) meet and their ranks as well.
Each agent says how many ranks it has; node 0 numbers them node by node and tells all, together with the job:
options are taken from node 0, so that all ranks have the same.

While the ranks run, a thread of each agent talks to the store, so that an agent answers signals and ends its
ranks whatever the network does. It raises a count every quarter of a second, by which node 0 sees that it
lives, and says how its ranks ended. Node 0 gives one verdict for all: every agent ends with it, with the
same exit code. When ranks have failed on several nodes, the first counts; ages are compared, for clocks of
different nodes cannot be. A node that fell silent counts before ranks that failed: they failed for want of
it.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch.distributed as dist

import topotune
from topotune.errors import RunError, UsageError
from topotune.launch import meeting
from topotune.launch.local_ranks import Place, job_folder, read_result, started_ranks, watch
from topotune.launch.noted_signals import NotedSignals, act_on, noted_signals
from topotune.launch.rank_failure import RankFailure
from topotune.probe.membership import TITLES, PerNode

_PREFIX: Final = "topotune/nodes"
_TOKEN: Final = "topotune nodes"
_BEAT_S: Final = 0.25
_SILENT_S: Final = 8.0
"""After which a node that says nothing is taken for gone."""
_COLLECT_S: Final = 1.0
"""How long node 0 waits for further failures after the first that it hears of."""
_ACKNOWLEDGE_S: Final = 5.0
_POLL_S: Final = 0.1
_REPORT_AFTER_S: Final = 10.0

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How an agent's ranks ended, or all nodes' (the verdict).

    Attributes:
        signal: the agent was told to end by this one, or None.
        failure: the first rank that failed, as fields of `RankFailure`, or None.
        age_s: how long ago that was when it was said.
        gone: in words, which node fell silent, or None.
        result: what rank 0 returned, where all nodes shall have it.
    """

    signal: int | None = None
    failure: dict[str, Any] | None = None
    age_s: float = 0.0
    gone: str | None = None
    result: Any = None

    @property
    def well(self) -> bool:
        """All ranks ended by themselves, without failing."""
        return self.signal is None and self.failure is None and self.gone is None

    def act(self) -> None:
        """Raise what ended the run, if it did not end well."""
        if self.signal is not None:
            act_on(self.signal)
        if self.failure is not None:
            raise RankFailure(**self.failure).error()
        if self.gone is not None:
            raise RunError(self.gone)


def run_on_nodes(
    node: PerNode,
    num_ranks: int,
    entry: str,
    payload: dict[str, Any],
    *,
    share_result: bool = False,
    report: Report = lambda line: None,
) -> Any:
    """Run a function on ranks of several nodes. Called on each of them.

    Args:
        node: which one this is, and where node 0 is.
        num_ranks: to start here.
        entry: ``"package.module:function"``; the same on all nodes.
        payload: JSON; node 0's counts.
        share_result: all nodes get the result, not node 0 alone.
        report: takes lines for the user, while nodes wait for each other.

    Returns:
        What the function returned on rank 0, as JSON keeps it; None on other nodes, unless it is shared.

    Raises:
        TopotuneError: on all nodes the same, of what the first failing rank raised.
        RankFailedError: a rank ended in any other way; it names the first.
        RunError: nodes did not find each other, or one is gone.
        KeyboardInterrupt: SIGINT came on a node; all ranks of all nodes have ended.
        SystemExit: another signal came on a node.
    """
    with noted_signals() as noted:
        agent = _Agent(node, noted, report)
        try:
            place, payload = agent.meet(num_ranks, entry, payload)
        except RunError:
            noted.act()  # it gave up waiting because of one
            raise
        except dist.DistError as problem:
            raise RunError(f"node 0 is gone: {str(problem).splitlines()[0]}") from problem
        with job_folder(entry, payload) as folder:
            agent.start()
            with started_ranks(place, folder) as context:
                failures = watch(context, place, folder, noted, agent.over)
                ended_well = not failures and not noted.signals and not agent.over()
                result = read_result(folder) if node.node_index == 0 and ended_well else None
                verdict = agent.settle(failures, result if share_result else None)
    verdict.act()
    return verdict.result if share_result else result


class _Agent:
    """This node's tie to the others."""

    def __init__(self, node: PerNode, noted: NotedSignals, report: Report) -> None:
        self._node = node
        self._noted = noted
        self._report = report
        self._store: Any = None
        self._names: list[str] = []
        self._own: _Ending | None = None
        self._verdict: _Ending | None = None
        self._heard_s = time.monotonic()
        self._said = threading.Event()
        self._decided = threading.Event()

    def meet(self, num_ranks: int, entry: str, payload: dict[str, Any]) -> tuple[Place, dict[str, Any]]:
        """Meet the other nodes; where this one's ranks stand, and the payload for all.

        Raises:
            RunError: they did not come in time, or a signal came.
            UsageError: they run something else.
        """
        node = self._node
        port_hint = f"another process has it; {TITLES[node.launcher]} says where nodes meet"
        if node.node_index == 0:
            self._store = meeting.serve(
                node.master_port,
                _TOKEN,
                interface=meeting.interface_for(node.master_address),
                port_hint=port_hint,
            )
        else:
            self._store, _ = meeting.find(
                [(node.master_address, node.master_port)],
                _TOKEN,
                what=f"node 0 ({TITLES[node.launcher]})",
                stopped=lambda: bool(self._noted.signals),
                report=self._report,
            )
        hello = {
            "ranks": num_ranks,
            "host": socket.gethostname(),
            "entry": entry,
            "version": topotune.__version__,
        }
        self._put(f"hello/{node.node_index}", hello)
        if node.node_index == 0:
            hellos = [self._await(f"hello/{index}", index) for index in range(node.num_nodes)]
            self._put("job", {"hellos": hellos, "payload": payload})
        job = self._await("job", 0)
        self._store.add(f"{_PREFIX}/met", 1)
        hellos = job["hellos"]
        for index, theirs in enumerate(hellos):
            for key in ("entry", "version"):
                if theirs[key] != hellos[0][key]:
                    self._await_count("met", node.num_nodes)  # the others shall read why
                    raise UsageError(
                        f"node 0 ({hellos[0]['host']}) runs {key} {hellos[0][key]}, "
                        f"node {index} ({theirs['host']}) {theirs[key]}",
                        hint="start the same command of the same topotune on all nodes",
                    )
        self._names = [f"node {index} ({theirs['host']})" for index, theirs in enumerate(hellos)]
        counts = [theirs["ranks"] for theirs in hellos]
        place = Place(
            num_ranks=num_ranks,
            node_index=node.node_index,
            num_nodes=node.num_nodes,
            first_rank=sum(counts[: node.node_index]),
            world_size=sum(counts),
            # node 0 need not reach itself by the name that others call it
            master_address="127.0.0.1" if node.node_index == 0 else node.master_address,
            master_port=node.master_port,
        )
        return place, job["payload"]

    def start(self) -> None:
        """Begin to talk."""
        self._heard_s = time.monotonic()
        talk = self._lead if self._node.node_index == 0 else self._follow
        threading.Thread(target=self._guarded, args=(talk,), daemon=True, name="topotune nodes").start()

    def over(self) -> bool:
        """The run has ended, or node 0 is gone."""
        return self._decided.is_set() or self._lost()

    def settle(self, failures: list[RankFailure], result: Any) -> _Ending:
        """Say how this node's ranks ended, and wait for the verdict on all.

        Args:
            failures: of this node's ranks, the first first.
            result: for all nodes.
        """
        if self._noted.signals:
            self._own = _Ending(signal=self._noted.signals[0])
        elif failures:
            first = failures[0]
            self._own = _Ending(failure=asdict(first), age_s=time.monotonic() - first.happened_s)
        else:
            self._own = _Ending(result=result)
        self._said.set()
        patience_s = float("inf")
        while not self.over() and time.monotonic() < patience_s:
            self._decided.wait(_POLL_S)
            if self._noted.signals and self._own.signal is None:
                # It came while slower nodes were waited for.
                self._own = _Ending(signal=self._noted.signals[0])
                self._said.set()
            if self._own.signal is not None:
                patience_s = min(patience_s, time.monotonic() + _SILENT_S)
        if self._verdict is not None:
            return self._verdict
        if self._own.signal is not None:
            return self._own
        # Without node 0 nothing works: what failed here failed for want of it.
        return _Ending(gone=f"{self._names[0]} is gone")

    def _lost(self) -> bool:
        """Node 0 has been silent for too long."""
        return self._node.node_index != 0 and time.monotonic() - self._heard_s > _SILENT_S

    def _guarded(self, talk: Callable[[], None]) -> None:
        try:
            talk()
        except dist.DistError:  # the connection broke: there is no verdict, and will be none
            self._decided.set()

    def _follow(self) -> None:
        """What the thread of all nodes but node 0 does."""
        index = self._node.node_index
        said: _Ending | None = None
        while True:
            self._said.wait(_BEAT_S)
            self._said.clear()
            if self._own is not None and self._own is not said:
                said = self._own
                self._put(f"ended/{index}", asdict(said))
            self._store.add(f"{_PREFIX}/beat/{index}", 1)
            if self._store.check([f"{_PREFIX}/verdict"]):
                self._verdict = _Ending(**self._get("verdict"))
                self._store.add(f"{_PREFIX}/acknowledged", 1)
                self._decided.set()
                return
            self._heard_s = time.monotonic()

    def _lead(self) -> None:
        """What node 0's thread does: hear all, and decide."""
        others = range(1, self._node.num_nodes)
        endings: dict[int, tuple[float, _Ending]] = {}
        beats = dict.fromkeys(others, (0, time.monotonic()))
        while True:
            self._said.wait(_BEAT_S)
            self._said.clear()
            now_s = time.monotonic()
            if self._own is not None and (0 not in endings or endings[0][1] is not self._own):
                endings[0] = (now_s - self._own.age_s, self._own)
            for index in others:
                count = self._store.add(f"{_PREFIX}/beat/{index}", 0)
                if count != beats[index][0]:
                    beats[index] = (count, now_s)
                ended = index in endings and not endings[index][1].well
                if not ended and self._store.check([f"{_PREFIX}/ended/{index}"]):
                    ending = _Ending(**self._get(f"ended/{index}"))
                    endings[index] = (now_s - ending.age_s, ending)
            silent_s = {index: now_s - heard_s for index, (_, heard_s) in beats.items()}
            verdict = self._judge(endings, silent_s, now_s)
            if verdict is not None:
                break
        self._put("verdict", asdict(verdict))
        self._await_count("acknowledged", sum(silent < _SILENT_S for silent in silent_s.values()))
        self._verdict = verdict
        self._decided.set()

    def _judge(
        self, endings: dict[int, tuple[float, _Ending]], silent_s: dict[int, float], now_s: float
    ) -> _Ending | None:
        """The verdict, once it is clear.

        Args:
            endings: node → when its ranks ended by node 0's clock, and how.
            silent_s: node → for how long it has said nothing.
            now_s: by node 0's clock.
        """
        bad = sorted((at_s, index) for index, (at_s, ending) in endings.items() if not ending.well)
        told = next((index for _, index in bad if endings[index][1].signal is not None), None)
        if told is not None:
            return endings[told][1]
        gone = [index for index, silent in silent_s.items() if silent > _SILENT_S and index not in endings]
        if gone:
            names = ", ".join(self._names[index] for index in gone[:8])
            verb = "is" if len(gone) == 1 else "are"
            return _Ending(gone=f"{names} {verb} gone: nothing was heard for {_SILENT_S:.0f} s")
        if bad:
            # Whoever has not spoken since may be the cause: wait until it speaks, or is known to be gone.
            since_s = now_s - bad[0][0]
            waiting = any(silent > max(2 * _BEAT_S, since_s) for silent in silent_s.values())
            if since_s < _COLLECT_S or waiting:
                return None
            return endings[bad[0][1]][1]
        if len(endings) == self._node.num_nodes:
            return endings[0][1]
        return None

    def _await(self, key: str, index: int) -> Any:
        """What a node writes, once it has."""
        start_s = time.monotonic()
        reported = False
        while not self._store.check([f"{_PREFIX}/{key}"]):
            waited_s = time.monotonic() - start_s
            if self._noted.signals or waited_s > meeting.TIMEOUT_S:
                raise RunError(
                    f"node {index} of {self._node.num_nodes} did not come within {waited_s:.0f} s",
                    hint=f"{TITLES[self._node.launcher]} names {self._node.num_nodes} nodes: "
                    "start topotune on each of them",
                )
            if waited_s > _REPORT_AFTER_S and not reported:
                self._report(f"waiting for node {index} of {self._node.num_nodes}")
                reported = True
            time.sleep(_POLL_S)
        return self._get(key)

    def _await_count(self, key: str, count: int) -> None:
        """Wait until so many nodes have counted under a key, for as long as one may reasonably take."""
        deadline_s = time.monotonic() + _ACKNOWLEDGE_S
        while self._store.add(f"{_PREFIX}/{key}", 0) < count and time.monotonic() < deadline_s:
            time.sleep(_BEAT_S / 5)

    def _put(self, key: str, value: Any) -> None:
        self._store.set(f"{_PREFIX}/{key}", json.dumps(value))

    def _get(self, key: str) -> Any:
        return json.loads(self._store.get(f"{_PREFIX}/{key}"))
