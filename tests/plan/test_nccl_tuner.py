"""The tuner plugin, built with the compiler that is here and driven as NCCL drives it."""

import ctypes
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest
from nccl_plans import ALL_TABLES, DEFAULT_ONLY, LARGE, ON_GLOO, ONE_ROW, THREE_ROWS, exported
from nccl_plugin import (
    ALLREDUCE,
    BROADCAST,
    COLLECTIVES,
    INFO,
    REDUCE,
    VERSIONS,
    WARN,
    Constants,
    Plugin,
    costs_of,
)

from topotune.errors import InputFileError, RunError, UsageError
from topotune.plan import find_row
from topotune.plan.exports import nccl_tuner
from topotune.plan.exports.nccl_table import CONSTANTS, read, write

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"
)

STRICT = ("-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wconversion")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The plugin without a table beside it, built under all warnings."""
    path = tmp_path_factory.mktemp("nccl") / "libnccl-tuner-topotune.so"
    path.write_bytes(nccl_tuner.compiled((*nccl_tuner.FLAGS, *STRICT)))
    return path


@pytest.fixture
def plugin(library, tmp_path, monkeypatch):
    """The plugin, and a way to give it a table."""
    loaded = Plugin(library)
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        monkeypatch.delenv(name, raising=False)

    def give(text):
        path = tmp_path / "some.table"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setenv("TOPOTUNE_NCCL_TABLE", str(path))
        return loaded

    return give


def expected(row, version, num_nodes):
    """What NCCL is made to run for a row of the plan, with how many channels (0: as it likes)."""
    if row.algorithm != "nccl":
        return None, 0
    algo, proto = row.params["algo"], row.params["proto"]
    if version == 2 and not (
        algo in ("tree", "ring") and (proto == "simple" or (proto == "ll" and num_nodes == 1))
    ):
        return None, 0
    return (algo, proto), row.params.get("channels", 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "plan",
    [ONE_ROW, THREE_ROWS, LARGE, ALL_TABLES, DEFAULT_ONLY, ON_GLOO],
    ids=["1", "3", "200", "all", "default-only", "gloo"],
)
def test_nccl_runs_what_the_plan_says_at_both_ends_of_every_range(plugin, plan, version):
    loaded = plugin(exported("nccl-tuner", plan)[0])
    for group in plan.groups:
        with loaded.communicator(version, group.shape.num_ranks, group.shape.num_nodes) as communicator:
            for name, collective in COLLECTIVES.items():
                table = getattr(group, name) or ()
                if plan is ON_GLOO:
                    table = ()
                    assert communicator.choose(collective, 5000)[:2] == (None, 0)
                for row in table:
                    ends = [row.min_bytes, 2**64 - 1 if row.max_bytes is None else row.max_bytes - 1]
                    for message_bytes in ends:
                        assert find_row(table, message_bytes) == row
                        assert communicator.choose(collective, message_bytes)[:2] == expected(
                            row, version, group.shape.num_nodes
                        )


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_table_does_not_name_is_left_alone(plugin, version):
    loaded = plugin(exported("nccl-tuner", THREE_ROWS)[0])
    with loaded.communicator(version) as communicator:
        for collective in (BROADCAST, REDUCE, COLLECTIVES["allgather"], 5, 99, -1, 2**31 - 1):
            assert communicator.choose(collective, 1000, channels=3) == (None, 3, list(costs_of()))
    for num_ranks, num_nodes in ((8, 2), (16, 1), (16, 16), (1, 1)):
        with loaded.communicator(version, num_ranks, num_nodes) as communicator:
            assert communicator.choose(ALLREDUCE, 1000, channels=3) == (None, 3, list(costs_of()))


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_cell_that_nccl_cannot_run_stays_so_and_no_channels_are_set(plugin, version):
    loaded = plugin(exported("nccl-tuner", THREE_ROWS)[0])
    with loaded.communicator(version) as communicator:
        costs = costs_of(unavailable=[("ring", "simple")])
        assert communicator.choose(ALLREDUCE, 2**23, costs) == (None, 0, list(costs))
        assert communicator.choose(ALLREDUCE, 2**23)[:2] == (("ring", "simple"), 16)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_tables_of_other_sizes_are_kept_to(plugin, version):
    with plugin(exported("nccl-tuner", ONE_ROW)[0]).communicator(version) as communicator:
        assert communicator.choose(ALLREDUCE, 1000, num_algos=6)[0] == ("nvls_tree", "simple")
        assert communicator.choose(ALLREDUCE, 1000, num_algos=5)[0] is None
        assert communicator.choose(ALLREDUCE, 1000, num_protos=2)[0] is None
        assert communicator.choose(ALLREDUCE, 1000, num_protos=4)[0] == ("nvls_tree", "simple")


def test_a_cell_that_nccl_itself_warns_of_is_left_alone(plugin):
    """NCCL multiplies rings of float8 by 1024, which costs them precision."""
    with plugin(exported("nccl-tuner", THREE_ROWS)[0]).communicator(6) as communicator:
        costs = costs_of()
        costs[1 * 3 + 2] *= 1024
        assert communicator.choose(ALLREDUCE, 2**23, costs)[0] is None
        costs[1 * 3 + 2] /= 8
        assert communicator.choose(ALLREDUCE, 2**23, costs)[0] == ("ring", "simple")


def test_the_oldest_interface_keeps_still_where_the_environment_chooses(plugin, monkeypatch):
    loaded = plugin(exported("nccl-tuner", THREE_ROWS)[0])
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "simple")
            with loaded.communicator(2) as communicator:
                assert communicator.choose(ALLREDUCE, 2**23)[:2] == (None, 0)
            with loaded.communicator(3) as communicator:  # here NCCL has ruled out what it must not run
                assert communicator.choose(ALLREDUCE, 2**23)[:2] == (("ring", "simple"), 16)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_table_is_told_and_nccl_goes_on(plugin, version, tmp_path, monkeypatch):
    loaded = plugin("")
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "none.table", "no such file"),
        (tmp_path, "it is no regular file"),
        (tmp_path / "pipe", "it is no regular file"),
    ):
        monkeypatch.setenv("TOPOTUNE_NCCL_TABLE", str(path))
        with loaded.communicator(version) as communicator:
            assert communicator.choose(ALLREDUCE, 1000) == (None, 0, list(costs_of()))
        assert loaded.said.pop() == (WARN, f"topotune: {path}: {reason}; NCCL chooses by itself")
    monkeypatch.setenv("TOPOTUNE_NCCL_TABLE", "")
    with loaded.communicator(version) as communicator:
        assert communicator.choose(ALLREDUCE, 1000) == (None, 0, list(costs_of()))
    assert loaded.said == [(INFO, "topotune: no table is named, NCCL chooses by itself")]


def test_the_log_says_which_table_and_how_many_rows(plugin, tmp_path):
    loaded = plugin(exported("nccl-tuner", THREE_ROWS)[0])
    with loaded.communicator(6):
        pass
    assert loaded.said == [
        (
            INFO,
            f"topotune: {tmp_path / 'some.table'} (nccl 2.27, cuda (NVIDIA H200), 16 ranks on 2 nodes): "
            "3 rows for communicators of 16 ranks on 2 nodes",
        )
    ]
    with loaded.communicator(6, logged=False) as communicator:  # NCCL may pass no logger
        assert communicator.choose(ALLREDUCE, 2**23)[0] == ("ring", "simple")


ROW = "row allreduce 16 2 0 inf ring simple 16"
BROKEN = {
    "": "line 0: the end is missing",
    "nonsense\n": "line 1: it is no topotune-nccl-table 1",
    "topotune-nccl-table 2\nend 0\n": "line 1: it is no topotune-nccl-table 1",
    "topotune-nccl-table 1\n": "line 1: the end is missing",
    "topotune-nccl-table 1\nend 0": "line 2: the last line has no end",
    f"topotune-nccl-table 1\n{ROW}\nend 2\n": "line 3: it has 1 rows and constants, not the '2' that it says",
    f"topotune-nccl-table 1\n{ROW}\n": "line 2: the end is missing",
    f"topotune-nccl-table 1\nend 0\n{ROW}\n": "line 3: there is more after the end",
    "topotune-nccl-table 1\n\nend 0\n": "line 2: '' is no item of a table",
    f"topotune-nccl-table 1\n{ROW} 1\nend 1\n": "line 2: a row has 10 fields, not 9",
    f"topotune-nccl-table 1\n{ROW.replace('ring', 'rinng')}\nend 1\n": "line 2: 'rinng' is no algorithm",
    f"topotune-nccl-table 1\n{ROW.replace('simple', 'SIMPLE')}\nend 1\n": "line 2: 'SIMPLE' is no protocol",
    f"topotune-nccl-table 1\n{ROW.replace('all', 'some')}\nend 1\n": "line 2: 'somereduce' is no collective",
    f"topotune-nccl-table 1\n{ROW[:-2]}65\nend 1\n": "line 2: '65' is no number of channels from 0 to 64",
    f"topotune-nccl-table 1\n{ROW.replace(' 0 ', ' -1 ')}\nend 1\n": "line 2: '-1' is no size",
    f"topotune-nccl-table 1\n{ROW.replace('inf', '0')}\nend 1\n": "line 2: a row from 0 to 0 holds no size",
    f"topotune-nccl-table 1\n{ROW.replace('inf', '18446744073709551615')}\nend 1\n": (
        "line 2: '18446744073709551615' is no size"
    ),
    f"topotune-nccl-table 1\n{ROW}\n{ROW}\nend 2\n": (
        "line 3: a row from 0 does not come after the row before"
    ),
    f"topotune-nccl-table 1\n{'x' * 256}\nend 0\n": "line 2: it has more than 255 bytes",
    f"topotune-nccl-table 1\n{ROW}\0\nend 1\n": "line 2: it has a zero byte",
    "topotune-nccl-table 1\nconstant speed 1\nend 1\n": "line 2: 'speed' is no constant",
    "topotune-nccl-table 1\nconstant tree_gb_per_s hopper 4 1\nend 1\n": (
        "line 2: '4' is no index of tree_gb_per_s"
    ),
    "topotune-nccl-table 1\nconstant tree_gb_per_s hopper more -1\nend 1\n": (
        "line 2: '-1' is no number from 0 to 1000000"
    ),
    "topotune-nccl-table 1\nconstant tree_gb_per_s hopper more nan\nend 1\n": (
        "line 2: 'nan' is no number from 0 to 1000000"
    ),
    "topotune-nccl-table 1\nconstant tree_gb_per_s hopper 1\nend 1\n": (
        "line 2: tree_gb_per_s has 4 fields, not 5"
    ),
    "topotune-nccl-table 1\n\x1b[2J\nend 1\n": "line 2: '?[2J' is no item of a table",
}


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_table_is_told_and_none_of_it_is_used(plugin, text):
    loaded = plugin(text)
    with loaded.communicator(5) as communicator:
        assert communicator.choose(ALLREDUCE, 1000) == (None, 0, list(costs_of()))
    [(level, said)] = loaded.said
    assert level == WARN
    assert said.endswith(f": {BROKEN[text]}; NCCL chooses by itself")
    with pytest.raises(InputFileError):
        read(text, "it")


@pytest.mark.parametrize("seed", range(4))
def test_the_plugin_takes_what_read_takes_and_nothing_else(plugin, seed):
    """Tables with a few bytes changed, left out or put in: both readers, which share no code, agree."""
    chance = random.Random(seed)
    text = exported("nccl-tuner", THREE_ROWS)[0].encode()
    text = text.replace(b"end 3", b"constant hw_latency_us net ring simple 14.5\nend 4")
    taken = 0
    for _ in range(150):
        mutated = bytearray(text)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            place = chance.randrange(len(mutated))
            some = chance.choice(b"0123456789 \n.-#xinfrow\0\r\xff")
            match chance.randrange(3):
                case 0:
                    mutated[place] = some
                case 1:
                    del mutated[place]
                case _:
                    mutated.insert(place, some)
        loaded = plugin(bytes(mutated))
        loaded.said.clear()
        with loaded.communicator(6):
            pass
        try:
            read(mutated.decode("latin-1"), "it")
        except InputFileError:
            assert loaded.said[0][0] == WARN, bytes(mutated)
        else:
            assert loaded.said[0][0] == INFO, (bytes(mutated), loaded.said)
            taken += 1
    assert 0 < taken < 150


@pytest.mark.parametrize("version", VERSIONS)
def test_constants_go_where_nccl_keeps_them_and_only_they_change(plugin, version):
    lines = ["topotune-nccl-table 1"]
    wanted = Constants()
    places = {
        "base_latency_us": "base_latency",
        "hw_latency_us": "hw_latency",
        "ll_max_gb_per_s": "ll_max",
        "ring_ll128_gb_per_s": "ring_ll128",
        "tree_ll128_gb_per_s": "tree_ll128",
        "tree_gb_per_s": "tree",
        "nvls_tree_gb_per_s": "nvls_tree",
    }
    for number, (name, indices) in enumerate(CONSTANTS.items()):
        index = [len(names) - 1 - number % 2 for names in indices]
        value = f"{number + 1}.25"
        lines.append(
            f"constant {name} {' '.join(names[at] for names, at in zip(indices, index, strict=True))} {value}"
        )
        target = getattr(wanted, places[name])
        for at in index[:-1]:
            target = target[at]
        target[index[-1]] = float(value)
    text = "\n".join([*lines, f"end {len(CONSTANTS)}"]) + "\n"
    assert write(read(text, "it")) == text
    loaded = plugin(text)
    with loaded.communicator(version):
        pass
    assert bytes(loaded.constants) == bytes(wanted if version >= 5 else Constants())


@pytest.mark.parametrize("version", VERSIONS)
def test_many_threads_each_with_a_communicator_and_all_on_one(plugin, version):
    loaded = plugin(exported("nccl-tuner", LARGE)[0])
    problems = []

    def work(seed):
        chance = random.Random(seed)
        try:
            with loaded.communicator(version, logged=False) as own:
                for _ in range(300):
                    message_bytes = chance.randrange(250 * 1024)
                    for communicator in (own, shared):
                        found = communicator.choose(ALLREDUCE, message_bytes)[:2]
                        row = find_row(LARGE.groups[0].allreduce, message_bytes)
                        assert found == expected(row, version, 2)
        except BaseException as problem:
            problems.append(problem)

    with loaded.communicator(version, logged=False) as shared:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []


def test_a_call_without_a_context_or_costs_does_nothing(plugin):
    loaded = plugin(exported("nccl-tuner", THREE_ROWS)[0])
    channels = ctypes.c_int(3)
    tuner = loaded.tuner(6)
    assert tuner.choose(None, ALLREDUCE, 10, 1, costs_of(), 7, 3, 0, ctypes.byref(channels)) == 0
    assert tuner.end(None) == 0
    assert tuner.chunk_size is None  # NCCL keeps its own
    with loaded.communicator(6) as communicator:
        assert (
            tuner.choose(communicator._context, ALLREDUCE, 10, 1, None, 7, 3, 0, ctypes.byref(channels)) == 0
        )
    assert channels.value == 3


@pytest.mark.parametrize("name", ["libnccl-tuner-topotune.so", "lib.so.so.1", "plain"])
def test_the_table_beside_the_library_is_found(tmp_path, library, name, monkeypatch):
    monkeypatch.delenv("TOPOTUNE_NCCL_TABLE", raising=False)
    document = read(exported("nccl-tuner", THREE_ROWS)[0], "it")
    beside = nccl_tuner.table_path(tmp_path / name)
    shutil.copy(library, tmp_path / name)
    beside.write_text(write(document))
    loaded = Plugin(tmp_path / name)
    with loaded.communicator(6) as communicator:
        assert communicator.choose(ALLREDUCE, 2**23)[:2] == (("ring", "simple"), 16)
    assert str(beside) in loaded.said[0][1]


def test_only_the_symbols_of_nccl_are_exported(library):
    loaded = ctypes.CDLL(str(library))
    for version in VERSIONS:
        assert Plugin(library).tuner(version).name == b"topotune"
    for name in ("ncclTunerPlugin_v1", "ncclTunerPlugin_v7", "load", "choose", "constants"):
        assert not hasattr(loaded, name)


def test_the_table_that_the_documentation_shows_is_one(plugin):
    document = (Path(__file__).parents[2] / "docs" / "how-to" / "nccl.md").read_text()
    [text] = re.findall(r"```text\n(.*?)```", document, re.DOTALL)
    assert write(read(text, "it")) == text
    loaded = plugin(text)
    with loaded.communicator(5) as communicator:
        assert communicator.choose(ALLREDUCE, 65536)[:2] == (("ring", "simple"), 16)
    assert loaded.constants.hw_latency[2][1][2] == 14.5
    assert loaded.constants.tree[2][2] == 36


def test_without_a_compiler_or_with_a_bad_one_the_error_says_so(monkeypatch, tmp_path):
    document = read(exported("nccl-tuner", THREE_ROWS)[0], "it")
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(UsageError, match="CC=no-such-compiler -O2: there is no such program"):
        nccl_tuner.files(document, tmp_path / "a.so")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(RunError, match=r"false does not build the plugin \(exit code 1\): it said nothing"):
        nccl_tuner.files(document, tmp_path / "a.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="neither CC nor cc, gcc or clang is there"):
        nccl_tuner.files(document, tmp_path / "a.so")
    assert nccl_tuner.files(document, tmp_path / "a.table") == {
        tmp_path / "a.table": write(document).encode()
    }
