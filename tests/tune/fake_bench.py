"""A bench with made-up times and a made-up clock, for the code that chooses."""

import json

import numpy as np

from topotune.tune.trial import DEFAULTS, BlockTimes, Broken, Candidate, Check

FAST = Candidate.of("ring", {"channels": 2})
SLOW = Candidate.of("ring", {"channels": 1})
TREE = Candidate.of("double_binary_tree", {"pieces": 2})
RECURSIVE = Candidate.of("recursive_doubling", {})


def usual_stretch(_call_s):
    """Wall time of rounds over that of their calls."""
    return 1.45


class FakeBench:
    """Times are ``true_s(candidate, bytes)`` with log-normal noise; ``miss_rate`` of starts are missed,
    but none behind a barrier.

    ``hangs(candidate, bytes, condition)`` says whether a call never ends. A block costs ``block_s`` beside
    its calls, new connections ``renew_s``.
    """

    def __init__(
        self,
        true_s,
        *,
        noise=0.05,
        seed=0,
        wrong=(),
        miss_rate=0.0,
        slow_down=None,
        hangs=lambda candidate, message_bytes, condition: False,
        block_s=2e-3,
        renew_s=0.02,
    ):
        self.true_s = true_s
        self.noise = noise
        self.rng = np.random.default_rng(seed)
        self.wrong = set(wrong)
        self.miss_rate = miss_rate
        self.slow_down = slow_down or {}
        self.hangs = hangs
        self.block_s = block_s
        self.renew_s = renew_s
        self.clock_s = 0.0
        self.blocks = []
        self.checks = []
        self.renewals = 0

    def now_s(self):
        return self.clock_s

    def check(self, candidate, message_bytes, *, limit_s):
        self.checks.append((candidate, message_bytes))
        call_s = self.true_s(candidate, message_bytes)
        if limit_s is not None and (call_s > limit_s or self.hangs(candidate, message_bytes, "check")):
            self.clock_s += limit_s
            return Check(problem=None, call_s=float("nan"), broken=f"a call had not ended after {limit_s} s")
        self.clock_s += 2 * call_s
        problem = "rank 1 got 3, not 6" if candidate in self.wrong else None
        return Check(problem=problem, call_s=call_s)

    def renew(self):
        self.renewals += 1
        self.clock_s += self.renew_s

    def run(self, block):
        json.dumps(block.to_json())
        self.blocks.append(block)
        for index, (arm, limit_s) in enumerate(zip(block.arms, block.limits_s, strict=True)):
            if limit_s is not None and self.hangs(arm, block.message_bytes, block.condition):
                self.clock_s += limit_s
                lost = np.full((len(block.orders), len(block.arms)), np.nan)
                broken = Broken(arm=index, why=f"a call had not ended after {limit_s} s")
                return BlockTimes(times_s=lost, num_missed=0, scheme="clock", broken=broken)
        times = np.empty((len(block.orders), len(block.arms)))
        missed = 0
        self.clock_s += self.block_s + sum(
            count * self.true_s(arm, block.message_bytes)
            for arm, count in zip(block.arms, block.warmups, strict=True)
        )
        for row, order in enumerate(block.orders):
            assert sorted(order) == list(range(len(block.arms)))
            for arm in order:
                true_s = self.true_s(block.arms[arm], block.message_bytes)
                true_s *= self.slow_down.get((block.arms[arm], block.condition), 1.0)
                time_s = true_s * np.exp(self.rng.normal(0, self.noise))
                self.clock_s += max(time_s, block.expected_s[arm])
                late = self.rng.random() < self.miss_rate and block.scheme == "clock"
                missed += late
                times[row, arm] = np.nan if late else time_s
        return BlockTimes(times_s=times, num_missed=missed, scheme=block.scheme)


def default_time(message_bytes):
    """5 ms and 1 GB/s."""
    return 5e-3 + message_bytes / 1e9


def factors(table):
    """True times from the default's, divided by a candidate's speed-up."""

    def true_s(candidate, message_bytes):
        speedup = 1.0 if candidate in DEFAULTS else table[candidate]
        speedup = speedup(message_bytes) if callable(speedup) else speedup
        return default_time(message_bytes) / speedup

    return true_s
