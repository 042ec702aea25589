"""The tuner plugin's memory: no leak, no stray access, under valgrind and the compiler's sanitizers."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from nccl_plans import DEFAULT_ONLY, LARGE, THREE_ROWS, exported

from topotune.plan.exports import nccl_tuner

DRIVER = Path(__file__).with_name("nccl_driver.c")
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NCCL_ALGO", "NCCL_PROTO")}

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def build_driver(folder, *flags):
    """The driver and the plugin, built with the same flags."""
    driver, plugin = folder / "driver", folder / "plugin.so"
    command = ["gcc", "-std=c99", "-g", "-Wall", "-Wextra", *flags, str(DRIVER), "-o", str(driver), "-ldl"]
    built = subprocess.run([*command, "-pthread"], capture_output=True, text=True, timeout=120, check=False)
    if built.returncode != 0:
        return None
    plugin.write_bytes(nccl_tuner.compiled((*nccl_tuner.FLAGS, "-g", *flags)))
    return str(driver), str(plugin)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Tables that are sound, cut off at every tenth byte, changed at random, or not there."""
    monkeypatch.setenv("CC", "gcc")
    chance = random.Random(7)
    sound = [exported("nccl-tuner", plan)[0].encode() for plan in (THREE_ROWS, LARGE, DEFAULT_ONLY)]
    small = sound[0].replace(b"end 3", b"constant hw_latency_us net ring simple 14.5\nend 4")
    texts = [*sound, small, *(small[:cut] for cut in range(0, len(small), 10))]
    for _ in range(40):
        changed = bytearray(small)
        for _ in range(chance.choice((1, 2, 9))):
            changed[chance.randrange(len(changed))] = chance.choice(b"019 \n.-#\0\xff")
        texts.append(bytes(changed))
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.table"
        path.write_bytes(text)
        paths.append(str(path))
    return [*paths, str(tmp_path / "none.table"), ""]


def test_sanitizers_find_nothing(tmp_path, tables):
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    built = build_driver(tmp_path, *flags)
    if built is None:
        pytest.skip("gcc is here without its sanitizers")
    environment = ENVIRONMENT | {"ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run(
        [*built, *tables], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_valgrind_finds_no_leak(tmp_path, tables):
    built = build_driver(tmp_path)
    few = [*tables[:8], *tables[-2:]]
    command = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=9"]
    done = subprocess.run(
        [*command, *built, *few], capture_output=True, text=True, timeout=170, env=ENVIRONMENT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


def test_threads_do_not_race(tmp_path, tables):
    built = build_driver(tmp_path, "-fsanitize=thread")
    if built is None:
        pytest.skip("gcc is here without its thread sanitizer")
    done = subprocess.run(
        [*built, *tables[:4]], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel lays out memory as the thread sanitizer does not expect")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0
