"""What is exported, taken by the programs themselves, where they are installed.

Each program runs in a process of its own: their imports warn, change loggers and environment, and some end
the process at a wrong setting, which is what is tested.
"""

import importlib.util
import json
import os
import subprocess
import sys

import export_plans
import pytest
import torch
import torch.distributed as dist
from export_plans import PLANS, gpu_document, make, text_of
from gloo_world import run_world
from torch.nn.parallel import DistributedDataParallel

from topotune.plan.exports import ExportOptions, catalog

MIB = 2**20


@pytest.fixture(autouse=True)
def _only_stacks(monkeypatch):
    monkeypatch.setattr(catalog, "MODULES", export_plans.only_stacks())


def needs(module: str):
    root = module.split(".")[0]
    return pytest.mark.skipif(importlib.util.find_spec(root) is None, reason=f"{root} is not installed")


def python(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""} | variables,
        capture_output=True,
        text=True,
        timeout=150,
    )


def last_json(script: str, *arguments: str, **variables: str):
    done = python(script, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# torch's DDP


def rebuilt_buckets(rank: int, num_ranks: int, store, text: str) -> list[int]:
    """Sizes of DDP's buckets in bytes after three steps of twelve layers of 256 KiB each.

    Buckets do not depend on the number of ranks, so that one does.
    """
    settings = json.loads(text)
    dist.init_process_group(**settings["init_process_group"])
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(12)))
    ddp = DistributedDataParallel(model, **settings["ddp"])
    for _ in range(3):
        ddp(torch.ones(1, 256)).sum().backward()
    sizes = ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    dist.destroy_process_group()
    return [int(size) for size in sizes.split(",")]


@pytest.mark.gloo
@pytest.mark.parametrize(
    ("caps", "expected_kib"),
    [((0.5,), [512] * 6), ((0.25, 1), [256, 1024, 1024, 768]), ((25,), [3072]), ((), [1024, 2048])],
    ids=["one size", "a list", "an explicit 25", "DDP's own"],
)
def test_ddp_makes_the_buckets_that_the_export_says(caps, expected_kib):
    document = export_plans.default_document()
    document["ddp"] = {"bucket_caps_mb": list(caps)} if caps else None
    sizes = run_world(1, rebuilt_buckets, text_of("torch", make(document)))
    assert sizes == [[kib * 1024 for kib in expected_kib]]


# Horovod

HOROVODS_READER = """
import json, sys, types, yaml
from horovod.runner.common.util import config_parser
class Arguments(types.SimpleNamespace):
    def __getattr__(self, name): return None
arguments, environment = Arguments(), {}
config_parser.set_args_from_config(arguments, yaml.safe_load(sys.argv[1]), set())
config_parser.validate_config_args(arguments)
config_parser.set_env_from_args(environment, arguments)
print(json.dumps(environment))
"""


@needs("horovod")
@pytest.mark.parametrize(
    "plan",
    [*PLANS.values(), make(gpu_document(1e-9)), make(gpu_document(2**20))],
    ids=[*PLANS, "tiny", "the largest"],
)
def test_horovodrun_makes_of_the_file_what_the_environment_export_says(plan):
    environment = last_json(HOROVODS_READER, text_of("horovod", plan))
    lines = dict(line.split("=") for line in text_of("horovod-env", plan).split())
    as_horovod_reads = {name: str(int(float(value))) for name, value in environment.items()}
    assert as_horovod_reads == lines


# DeepSpeed, Accelerate


@needs("deepspeed")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_deepspeed_takes_the_bucket_size(name):
    script = (
        "import json, sys\n"
        "from deepspeed.runtime.zero.config import DeepSpeedZeroConfig\n"
        "config = json.loads(sys.argv[1])\n"
        "zero = DeepSpeedZeroConfig(**{'stage': 2} | config.get('zero_optimization', {}))\n"
        "print(json.dumps([zero.reduce_bucket_size, zero.stage]))"
    )
    expected = {"cpu": 25 * MIB // 2, "gpu": int(32.5 * MIB) // 2}.get(name, 500_000_000)
    assert last_json(script, text_of("deepspeed", PLANS[name])) == [expected, 2]


@needs("accelerate")
@pytest.mark.slow
@pytest.mark.parametrize(("caps", "handed_on"), [((25,), 25 * MIB), ((8,), 8 * MIB), ((), None)])
def test_accelerate_hands_the_cap_on_to_ddp(caps, handed_on):
    script = (
        "import json, sys\n"
        "from accelerate.utils import DistributedDataParallelKwargs\n"
        "print(json.dumps(DistributedDataParallelKwargs(**json.loads(sys.argv[1])).to_kwargs()))"
    )
    kwargs = last_json(script, text_of("accelerate", make(gpu_document(*caps))))
    assert {name: int(cap * MIB) for name, cap in kwargs.items()} == (
        {} if handed_on is None else {"bucket_cap_mb": handed_on}
    )


# TensorFlow


@needs("tensorflow")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("gpu", int(32.5 * MIB)), ("default", 0)])
def test_tensorflow_takes_the_size_of_packs_and_the_launchers_cluster(name, expected):
    script = (
        "import json, sys\n"
        "import tensorflow as tf\n"
        "options = tf.distribute.experimental.CommunicationOptions(**json.loads(sys.argv[1]))\n"
        "cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()\n"
        "print(json.dumps([options.bytes_per_pack, options.implementation.value, cluster]))"
    )
    cluster = {"worker": ["a:2222", "b:2222"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    found = last_json(script, text_of("tensorflow", PLANS[name]), TF_CONFIG=config)
    assert found == [expected, "AUTO", cluster]


# XLA


@needs("jax")
@pytest.mark.slow
@pytest.mark.parametrize("version", [None, "installed"])
def test_jax_knows_the_flags_that_are_written_for_its_version(version):
    found = python("import jaxlib.version as v; print(v.__version__)")
    installed = ".".join(found.stdout.split(".")[:2])
    options = ExportOptions(version=installed if version else None)
    flags = text_of("xla", PLANS["gpu"], options).split('"')[1].removesuffix(" ${XLA_FLAGS-}")
    script = "import jax; print(len(jax.devices('cpu')))"
    done = python(script, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
    unknown = flags.replace("combine_threshold", "combine_treshold")
    broken = python(script, XLA_FLAGS=unknown, JAX_PLATFORMS="cpu")
    assert broken.returncode != 0  # so the test above would have seen a flag that jax does not know
