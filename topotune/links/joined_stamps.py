"""What each rank stamped, put together into timings of pairs."""

from collections.abc import Sequence
from typing import Any

from topotune.links.measurement import ExchangeTiming, PairTiming
from topotune.links.ping_pong import has_trend
from topotune.links.timing_plan import TimingPlan


def join_ping_pongs(reports: Sequence[Sequence[dict[str, Any]]]) -> list[PairTiming]:
    """Put the two ranks' time stamps of each ping-pong together; the second sweep goes behind the first.

    Args:
        reports: by rank, what ``_Timing`` kept of each ping-pong, in the order taken; times on the common
            clock.
    """
    waiting: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for rank, of_rank in enumerate(reports):
        for report in of_rank:
            low, high = report["pair"]
            if rank == high:
                waiting.setdefault((low, high, report["size"]), []).append(report)
    columns: dict[tuple[int, int, int], dict[str, Any]] = {}
    for rank, of_rank in enumerate(reports):
        for leader in of_rank:
            low, high = leader["pair"]
            if rank != low:
                continue
            follower = waiting[low, high, leader["size"]].pop(0)
            there, back, halves = [], [], []
            for (start_s, end_s), (came_s,) in zip(leader["stamps_s"], follower["stamps_s"], strict=True):
                there.append(came_s - start_s)
                back.append(end_s - came_s)
                halves.append((end_s - start_s) / 2)
            cut = leader["num_warmups"]
            for src, dst, one_way in ((low, high, there), (high, low, back)):
                kept = columns.setdefault(
                    (src, dst, leader["size"]),
                    {
                        "one_way": [],
                        "halves": [],
                        "warmup": [],
                        "error": 0.0,
                        "concurrent": 1,
                        "steady": True,
                    },
                )
                kept["one_way"] += one_way[cut:]
                kept["halves"] += halves[cut:]
                kept["warmup"] += one_way[:cut]
                kept["error"] = max(kept["error"], leader["clock_error_s"] + follower["clock_error_s"])
                kept["concurrent"] = leader["num_concurrent"]
                kept["steady"] &= not has_trend(halves[cut:])
    return [
        PairTiming(
            src=src,
            dst=dst,
            message_bytes=size,
            one_way_s=_rounded(kept["one_way"]),
            half_round_trip_s=_rounded(kept["halves"]),
            warmup_s=_rounded(kept["warmup"]),
            clock_error_s=kept["error"],
            num_concurrent=kept["concurrent"],
            steady=kept["steady"],
        )
        for (src, dst, size), kept in sorted(columns.items())
    ]


def join_exchanges(reports: Sequence[Sequence[dict[str, Any]]], plan: TimingPlan) -> list[ExchangeTiming]:
    """The exchanges as their leaders saw them, without those during which a pair of the set was idle."""
    by_group: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = {}
    for rank, of_rank in enumerate(reports):
        for report in of_rank:
            if report["led"]:
                by_group.setdefault((report["group"], report["size"]), []).append((rank, report))
    timings = []
    for number, ((group, size), leaders) in enumerate(sorted(by_group.items(), key=lambda item: item[0])):
        all_began_s = max(report["stamps_s"][0][0] for _, report in leaders)
        one_ended_s = min(report["stamps_s"][-1][1] for _, report in leaders)
        for rank, report in leaders:
            durations = [end - start for start, end in report["stamps_s"]]
            together = [
                end - start
                for start, end in report["stamps_s"][1:]
                if start >= all_began_s and end <= one_ended_s
            ]
            timings += [
                ExchangeTiming(
                    a=min(rank, peer),
                    b=max(rank, peer),
                    message_bytes=size,
                    group=number,
                    num_concurrent=len(plan.exchanges[group].pairs),
                    samples_s=_rounded(together or durations[-1:]),
                )
                for peer in report["led"]
            ]
    return timings


def _rounded(samples_s: Sequence[float]) -> tuple[float, ...]:
    """To the nanosecond: clocks say no more, and files grow with every digit."""
    return tuple(round(sample, 9) for sample in samples_s)
