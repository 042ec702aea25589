"""What ranks run in the tests of the launcher."""

import os
import signal
import sys
import time
from pathlib import Path

from topotune import errors


def environment(payload):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
    return {"payload": payload, **{name: os.environ.get(name) for name in names}}


def allreduce(payload):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.item()


def talk(payload):
    print(f"rank {os.environ['RANK']} on stdout", flush=True)
    print(f"rank {os.environ['RANK']} on stderr, a terminal: {os.isatty(2)}", file=sys.stderr, flush=True)


def fail(payload):
    """``payload["how"]`` on ``payload["rank"]``, with a bystander's error a little later on all others."""
    if int(os.environ["RANK"]) == payload["rank"]:
        print("the last words", file=sys.stderr)
        match payload["how"]:
            case "exception":
                raise ValueError("no\nluck")
            case "exit":
                os._exit(7)
            case "sys.exit":
                sys.exit(5)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(payload.get("peers_fail_after_s", 60))
    raise ConnectionError("connection closed by peer")


def fail_in_allreduce(payload):
    """The peers fail within milliseconds of the rank that dies, by gloo's own errors."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    tensor = torch.zeros(1 << 20)
    dist.all_reduce(tensor)
    if dist.get_rank() == payload["rank"]:
        if payload["how"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("out of luck")
    while True:
        dist.all_reduce(tensor)


def raise_error(payload):
    cls = getattr(errors, payload["class"])
    raise cls(*payload["arguments"], **payload["keywords"])


def cannot_be_json(payload):
    return object()


def no_result(payload):
    os._exit(0)


def resist(payload):
    """A rank that will not end when asked to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.environ["RANK"] == "0":
        time.sleep(0.5)
        raise ValueError("rank 0 had enough")
    time.sleep(600)


def wait_for_the_end(payload):
    """Leave the pid of each rank in a folder, and wait."""
    path = Path(payload["folder"]) / os.environ["RANK"]
    path.with_suffix(".part").write_text(str(os.getpid()))
    path.with_suffix(".part").rename(path)
    time.sleep(600)


def nothing(payload):
    return None


def beside(payload):
    if payload.get("fails") == int(os.environ["RANK"]):
        raise errors.UsageError("not like this")
    if payload.get("dies") == int(os.environ["RANK"]):
        os._exit(7)
    return {"rank": os.environ["RANK"], "size": os.environ["WORLD_SIZE"], **payload}
