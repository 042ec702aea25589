"""How fast the ranks of one host copy memory, all at once: what an allreduce inside a host is held beside.

    python benchmarks/copy_bandwidth.py [--ranks 4] [--sizes 4K,…,16M] [--rounds 40] [--json]

What is compared. An allreduce of m bytes over n ranks of one host reads every rank's message and writes every
rank's result: at least n m bytes are read and n m bytes are written. n ranks that each copy m bytes read and
write exactly as many. So beside an allreduce stands the time in which n processes, at once, copy m bytes each
(``Tensor.copy_``, from one buffer of the process's own into another, one thread each), and the share is that
time over the allreduce's.

It is a yardstick and no bound. An allreduce in place touches one buffer a rank and a copy touches two, so
caches hold more of the former. And neither the sums are in a copy nor the ranks' waiting for each other,
which is nearly all of an allreduce of few bytes.

A sample is from the first rank's start behind a barrier to the last rank's end (one host has one clock), over
as many copies, back to back, as make up 16 MiB on each rank. ``copied`` counts a copied byte once; STREAM's
"copy" (McCalpin, 1995) counts it twice, read and written.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from topotune.launch.local_ranks import run_local
from topotune.units import format_bytes, format_rate, format_seconds, parse_bytes

SIZES = "4K,16K,64K,256K,1M,4M,8M,16M"
ROUNDS = 40
WARM_UPS = 2
SAMPLE_BYTES, MOST_COPIES = 16 << 20, 4096
"""A sample is so many bytes, or copies: of fewer bytes each it is Python that is timed."""

ELEMENT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies of one size by all ranks at once.

    Attributes:
        num_ranks: n, each of which copies a message of its own.
        message_bytes: m.
        median_s: in which all n have copied one message each.
        num_samples: of which it is the median.
    """

    num_ranks: int
    message_bytes: int
    median_s: float
    num_samples: int

    @property
    def copied_bytes_per_s(self) -> float:
        """n m over the time: bytes that all ranks together copy in a second."""
        return self.num_ranks * self.message_bytes / self.median_s

    def percent_of(self, allreduce_s: float) -> float:
        """What the copies take, in percent of an allreduce of as many bytes over as many ranks, > 0 s."""
        return 100 * self.median_s / allreduce_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4, help="processes that copy at once (default 4)")
    parser.add_argument("--sizes", default=SIZES, help=f"of a copy (default {SIZES})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each size (default {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    found = measure(options.ranks, [parse_bytes(size) for size in options.sizes.split(",")], options.rounds)
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
        return
    print(f"{'size':>8}  {'time':>9}  copied by {options.ranks} ranks")
    for one in found:
        size, time_s = format_bytes(one.message_bytes), format_seconds(one.median_s)
        print(f"{size:>8}  {time_s:>9}  {format_rate(one.copied_bytes_per_s)}")


def measure(num_ranks: int, sizes: Sequence[int], num_rounds: int = ROUNDS) -> list[Copies]:
    """Time copies on as many local processes, one size after the other.

    Args:
        num_ranks: processes.
        sizes: bytes, multiples of 4.
        num_rounds: samples of each size.
    """
    samples = run_local(num_ranks, ENTRY, {"sizes": list(sizes), "rounds": num_rounds})
    return [
        Copies(
            num_ranks=num_ranks,
            message_bytes=size,
            median_s=statistics.median(own),
            num_samples=len(own),
        )
        for size, own in zip(sizes, samples, strict=True)
    ]


def time_copies(payload: dict[str, Any]) -> list[list[float]]:
    """One rank's part; of each size the samples, seconds a copy, the same on all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    samples = []
    for size in payload["sizes"]:
        source = torch.ones(size // ELEMENT_BYTES)
        target = torch.zeros(size // ELEMENT_BYTES)  # written once, so that their pages exist
        num_copies = min(MOST_COPIES, max(1, SAMPLE_BYTES // size))
        own = []
        for _ in range(WARM_UPS + payload["rounds"]):
            dist.barrier()
            start_s = time.monotonic()
            for _ in range(num_copies):
                target.copy_(source)
            ends = torch.tensor([start_s, -time.monotonic()], dtype=torch.float64)
            dist.all_reduce(ends, op=dist.ReduceOp.MIN)
            own.append(float(-ends[1] - ends[0]) / num_copies)
        samples.append(own[WARM_UPS:])
    dist.destroy_process_group()
    return samples


ENTRY = f"{Path(__file__).stem}:{time_copies.__name__}"


if __name__ == "__main__":
    main()
