"""Train a small language model with DDP under a topotune plan, and see what the plan does to the step.

    torchrun --nproc-per-node 4 examples/train_ddp.py --plan plan.json

The model is a character-level transformer; the text is the source code of Python's standard library, so
nothing is downloaded. Two copies with equal weights train on equal batches: one exchanges gradients through
the "topotune" backend under the plan, the other through plain gloo. Their steps alternate, so both see the
same machine.
"""

import argparse
import inspect
import json
import statistics
import time
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import topotune

CONTEXT = 64


class CharTransformer(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens) + self.position
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def standard_library_text() -> torch.Tensor:
    modules: list[types.ModuleType] = [argparse, inspect, json, statistics, types]
    text = "".join(inspect.getsource(module) for module in modules)
    return torch.tensor(list(text.encode("ascii", "replace")), dtype=torch.long)


def batches(text: torch.Tensor, rank: int, batch_size: int):
    generator = torch.Generator().manual_seed(1000 + rank)
    while True:
        starts = torch.randint(len(text) - CONTEXT - 1, (batch_size,), generator=generator).tolist()
        windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        yield windows[:, :-1], windows[:, 1:]


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> tuple[float, float]:
    started = time.perf_counter()
    inputs, targets = batch
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - started, loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", help="plan.json (default: TOPOTUNE_PLAN)")
    parser.add_argument("--steps", type=int, default=60, help="steps of each copy (default 60)")
    parser.add_argument(
        "--width", type=int, default=32, help="width of the model (default 32: 36 thousand parameters)"
    )
    parser.add_argument("--depth", type=int, default=2, help="layers (default 2)")
    parser.add_argument("--batch-size", type=int, default=4, help="sequences a rank and step (default 4)")
    args = parser.parse_args()

    if args.plan:
        topotune.use(args.plan)
    dist.init_process_group("topotune")
    rank = dist.get_rank()
    torch.set_num_threads(1)  # the ranks of one machine share its cores
    text = standard_library_text()

    def copy_on(group: dist.ProcessGroup | None, **ddp_kwargs) -> tuple[DDP, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = DDP(CharTransformer(128, args.width, args.depth), process_group=group, **ddp_kwargs)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    copies = {
        "gloo": copy_on(dist.new_group(backend="gloo")),
        "topotune": copy_on(None, **topotune.ddp_kwargs()),
    }
    data = batches(text, rank, args.batch_size)
    times: dict[str, list[float]] = {name: [] for name in copies}
    losses: dict[str, float] = {}
    for number in range(args.steps):
        batch = next(data)
        names = list(copies) if number % 2 else list(reversed(copies))
        for name in names:
            taken_s, losses[name] = step(*copies[name], batch)
            times[name].append(taken_s)

    if rank == 0:
        num_parameters = sum(parameter.numel() for parameter in copies["gloo"][0].parameters())
        print(
            f"{num_parameters:,} parameters, {dist.get_world_size()} ranks, {args.steps} steps each in turn"
        )
        medians = {}
        for name, samples in times.items():
            samples = samples[3:] or samples  # DDP rebuilds its buckets in the first steps
            medians[name] = statistics.median(samples)
            low, _, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else (samples[0],) * 3
            print(
                f"  {name:9} step {medians[name] * 1e3:7.2f} ms   "
                f"middle half {low * 1e3:.2f} … {high * 1e3:.2f} ms   loss {losses[name]:.4f}"
            )
        print(f"  gloo / topotune: {medians['gloo'] / medians['topotune']:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
