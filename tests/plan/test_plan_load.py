import itertools
import json
import os
import subprocess
import sys
import threading

import pytest
from plan_example import example

from topotune.errors import PlanError
from topotune.plan import load_plan, plan_from_bytes, plan_from_document
from topotune.plan.rules import MAX_ROWS


def changed(*path_and_value):
    """The example with the value at a path replaced."""
    *path, last, value = path_and_value
    document = example()
    node = document
    for key in path:
        node = node[key]
    node[last] = value
    return document


def without(*path):
    document = example()
    node = document
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return document


def rows_of(count):
    return [{} for _ in range(count)]


TABLE = ("groups", 0, "allreduce")
EVIDENCE = (*TABLE, 1, "evidence")
HARD = ("fingerprint", "hard")
ALLREDUCE = (
    "default, ring, double_binary_tree, recursive_doubling, halving_doubling, swing, bine, torus, "
    "parameter_server, hierarchical, blueconnect, forest, "
    "native_allreduce, native_reduce_broadcast, native_reduce_scatter_allgather, native_allgather_reduce, "
    "native_hierarchical, shm, shm_hierarchical, nccl"
)

BAD_PLANS = {
    "newer version": (
        changed("schema_version", 2),
        "made by a newer topotune: schema_version 2, this one reads 1",
    ),
    "version 0": (
        changed("schema_version", 0),
        "schema_version: is 0, not a whole number from 1 to 9223372036854775807",
    ),
    "version true": (changed("schema_version", True), "schema_version: is true, not a whole number"),
    "no version": (without("schema_version"), "lacks the key 'schema_version'"),
    "another kind": (changed("schema", "topotune/topology"), "is a topotune/topology, not a topotune/plan"),
    "no schema": (without("schema"), "is no document of topotune: it lacks the key 'schema'"),
    "schema a number": (changed("schema", 3), "schema: is the number 3, not a text"),
    "a list": ([1, 2], "is a list of 2, not a document of topotune"),
    "null": (None, "is null, not a document of topotune"),
    "no groups": (changed("groups", []), "groups: is empty; the first is the world group"),
    "groups no list": (changed("groups", {}), "groups: is an object, not a list"),
    "key missing": (without(*TABLE, 1, "algorithm"), "groups[0].allreduce[1]: lacks the key 'algorithm'"),
    "key misspelt": (
        changed(*TABLE, 1, "algorythm", "ring"),
        "groups[0].allreduce[1]: has the unknown key 'algorythm'",
    ),
    "table null": (changed("groups", 0, "allgather", None), "groups[0].allgather: is null, not a list"),
    "table empty": (
        changed("groups", 0, "allgather", []),
        "groups[0].allgather: has no rows; a table that was not tuned is left out",
    ),
    "overlap": (
        changed(*TABLE, 1, "max_bytes", 2097152),
        "groups[0].allreduce[2].min_bytes: is 1048576, but row 1 ends at 2097152: rows 1 and 2 overlap",
    ),
    "gap": (
        changed(*TABLE, 1, "max_bytes", 2048),
        "groups[0].allreduce[2].min_bytes: is 1048576, but row 1 ends at 2048: rows 1 and 2 leave a gap",
    ),
    "unbounded row inside": (
        changed(*TABLE, 0, "max_bytes", None),
        "groups[0].allreduce[1].min_bytes: is 1024, but row 0 is unbounded (null): rows 0 and 1 overlap",
    ),
    "first row not from 0": (
        changed(*TABLE, 0, "min_bytes", 1),
        "groups[0].allreduce[0].min_bytes: is 1; the first row must start at 0",
    ),
    "last row bounded": (
        changed(*TABLE, 2, "max_bytes", 2097152),
        "groups[0].allreduce[2].max_bytes: is 2097152; the last row must be unbounded (null)",
    ),
    "row backwards": (
        changed(*TABLE, 1, "max_bytes", 1024),
        "groups[0].allreduce[1].max_bytes: is 1024, not above min_bytes = 1024",
    ),
    "negative size": (
        changed(*TABLE, 0, "min_bytes", -1),
        "groups[0].allreduce[0].min_bytes: is -1, not a whole number from 0 to 9223372036854775807",
    ),
    "fraction of a byte": (
        changed(*TABLE, 0, "min_bytes", 0.5),
        "groups[0].allreduce[0].min_bytes: is the number 0.5, not a whole number",
    ),
    "false for 0": (
        changed(*TABLE, 0, "min_bytes", False),
        "groups[0].allreduce[0].min_bytes: is false, not a whole number",
    ),
    "text for a size": (
        changed(*TABLE, 0, "max_bytes", "1K"),
        "groups[0].allreduce[0].max_bytes: is the text '1K', not a whole number",
    ),
    "unknown algorithm": (
        changed(*TABLE, 1, "algorithm", "rinng"),
        f"groups[0].allreduce[1].algorithm: 'rinng' is no known algorithm for allreduce: {ALLREDUCE}",
    ),
    "algorithm of another collective": (
        changed("groups", 1, "allgather", 0, "algorithm", "swing"),
        "groups[1].allgather[0].algorithm: 'swing' is no known algorithm for allgather: default, ring, "
        "halving_doubling, hierarchical, shm, shm_hierarchical, nccl",
    ),
    "NCCL's own on gloo": (
        changed(
            *TABLE,
            0,
            example()["groups"][0]["allreduce"][0]
            | {"algorithm": "nccl", "params": {"algo": "ring", "proto": "ll"}},
        ),
        "groups[0].allreduce[0].algorithm: is 'nccl', NCCL's own, but the plan's backend is 'gloo'",
    ),
    "NCCL's own of another collective": (
        changed(
            "groups",
            1,
            "allgather",
            0,
            {
                "min_bytes": 0,
                "max_bytes": None,
                "algorithm": "nccl",
                "params": {"algo": "tree", "proto": "ll"},
            },
        ),
        "groups[1].allgather[0].params: algo is 'tree', by which NCCL has no allgather: "
        "ring, collnet_direct, nvls, pat",
    ),
    "unknown parameter": (
        changed(*TABLE, 1, "params", {"chanels": 2}),
        "groups[0].allreduce[1].params: ring takes no parameter 'chanels' (it takes channels, pieces)",
    ),
    "parameter out of range": (
        changed(*TABLE, 1, "params", {"pieces": 0}),
        "groups[0].allreduce[1].params: pieces is 0, not a whole number from 1 to 1024",
    ),
    "ranks of another world": (
        changed(*TABLE, 2, "params", {"groups": [[0, 1], [2, 4]]}),
        "groups[0].allreduce[2].params: groups[1] names 4, which is no rank from 0 to 3",
    ),
    "a million rows": (
        changed("groups", 0, "allreduce", rows_of(1_000_000)),
        "groups[0].allreduce: has 1000000 rows, more than 1024",
    ),
    "many groups": (changed("groups", rows_of(65)), "groups: has 65 groups, more than 64"),
    "percent without bottleneck": (
        changed(*TABLE, 1, "no_bound_reason", "why not"),
        "groups[0].allreduce[1].no_bound_reason: is given, though there is a bound: "
        "it says why percent_of_optimum or bottleneck is null",
    ),
    "percent 0": (
        changed(*TABLE, 1, "percent_of_optimum", 0),
        "groups[0].allreduce[1].percent_of_optimum: is 0, not a number above 0",
    ),
    "interval backwards": (
        changed(*EVIDENCE, "ratio_ci", [1.3, 1.1]),
        "groups[0].allreduce[1].evidence.ratio_ci: runs from 1.3 down to 1.1",
    ),
    "interval of one end": (
        changed(*EVIDENCE, "ratio_ci", [1.3]),
        "groups[0].allreduce[1].evidence.ratio_ci: has 1 ends, fewer than 2",
    ),
    "time of 0": (
        changed(*EVIDENCE, "median_s", 0),
        "groups[0].allreduce[1].evidence.median_s: is 0, not a number above 0 and at most 1e+09",
    ),
    "no samples": (
        changed(*EVIDENCE, "num_samples", 0),
        "groups[0].allreduce[1].evidence.num_samples: is 0, not a whole number from 1 to 9223372036854775807",
    ),
    "world size of the groups": (
        changed(*HARD, "world_size", 8),
        "fingerprint.hard.ranks_per_node: adds up to 4, not to world_size = 8",
    ),
    "another world size": (
        changed(
            "fingerprint", "hard", example()["fingerprint"]["hard"] | {"world_size": 8, "ranks_per_node": [8]}
        ),
        "groups[0].shape.num_ranks: is 4, not the world size 8; the first group is the world group",
    ),
    "shape that does not add up": (
        changed("groups", 0, "shape", "num_nodes", 3),
        "groups[0].shape.num_ranks: is 4, but there are 3 nodes of 2 ranks",
    ),
    "world of another stride": (
        changed("groups", 0, "shape", "stride", 2),
        "groups[0].shape.stride: is 2; the first group is the world, whose stride is 1",
    ),
    "shape twice": (
        changed("groups", 1, "shape", example()["groups"][0]["shape"]),
        "groups[1].shape: is the same as that of groups[0]",
    ),
    "rank order": (
        changed("rank_order", [0, 1, 2, 2]),
        "rank_order: does not hold each rank from 0 to 3 once",
    ),
    "escape sequence": (
        changed("warnings", ["\x1b[2J"]),
        "warnings[0]: has the control character U+001B",
    ),
    "long text": (
        changed("context", "created", "x" * 5000),
        "context.created: has 5000 characters, more than 4096",
    ),
    "share above 1": (
        changed("certificate", "confidence", 95),
        "certificate.confidence: is 95, not a number of at least 0 and at most 1",
    ),
    "bandwidth 0": (
        changed("links", 0, "bandwidth_bytes_per_s", 0),
        "links[0].bandwidth_bytes_per_s: is 0, not a number above 0",
    ),
    "no buckets": (changed("ddp", "bucket_caps_mb", []), "ddp.bucket_caps_mb: has 0 items, fewer than 1"),
    "versions not texts": (
        changed("context", "versions", {"torch cpu": 2}),
        "context.versions['torch cpu']: is the number 2, not a text",
    ),
}


@pytest.mark.parametrize(("document", "problem"), BAD_PLANS.values(), ids=BAD_PLANS.keys())
def test_a_bad_plan_is_refused_with_file_place_and_value(tmp_path, document, problem):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    assert str(caught.value) == f"{path}: {problem}"
    assert caught.value.hint
    assert caught.value.exit_code == 2


TEXT = json.dumps(example())
BAD_TEXTS = {
    "empty": (b"  \n", "is empty"),
    "cut off": (
        TEXT[:-1].encode(),
        f"line 1 column {len(TEXT)}: the text ends in the middle of the document",
    ),
    "cut off in a text": (
        b'{"schema": "topotu',
        "line 1 column 12: the text ends in the middle of the document",
    ),
    "no JSON": (b"hello\nworld", "line 1 column 1: is no JSON: Expecting value"),
    "second line": (b'{\n"schema" 1}', "line 2 column 10: is no JSON: Expecting ':' delimiter"),
    "two documents": (b"{}\n{}", "line 2 column 1: is no JSON: Extra data"),
    "binary": (b"\x80\x02}q\x00.", "is no UTF-8 text: byte 0x80 at 0"),
    "NaN": (
        TEXT.replace("58.25", "NaN").encode(),
        "context.elapsed_s: NaN is no number that a document may hold",
    ),
    "Infinity": (
        TEXT.replace("58.25", "-Infinity").encode(),
        "context.elapsed_s: -Infinity is no number that a document may hold",
    ),
    "overflow": (TEXT.replace("58.25", "1e999").encode(), "context.elapsed_s: 1e999 is no finite number"),
    "65 bits": (
        TEXT.replace("58.25", "18446744073709551616").encode(),
        "context.elapsed_s: 18446744073709551616 does not fit in 64 bits",
    ),
    "a million digits": (
        TEXT.replace("58.25", "9" * 10**6).encode(),
        f"context.elapsed_s: {'9' * 57}... does not fit in 64 bits",
    ),
    "key twice": (
        TEXT.replace('"seed": 7', '"seed": 7, "seed": 8').encode(),
        "context: the key 'seed' stands twice",
    ),
    "lone surrogate": (
        TEXT.replace("the machine was busy", "\\ud800").encode(),
        "warnings[0]: has the control character U+D800",
    ),
    "lists 200,000 deep": (
        b"[" * 200_000,
        "line 1 column 65: lists and objects are nested more than 64 deep",
    ),
    "objects 200,000 deep": (
        b'{"a":' * 200_000,
        "line 1 column 321: lists and objects are nested more than 64 deep",
    ),
    "17 MiB": (
        b" " * (17 * 2**20),
        "has 17825792 bytes, more than the 16777216 that such a document may have",
    ),
}


@pytest.mark.parametrize(("data", "problem"), BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
def test_a_text_that_is_no_plan_is_refused_with_its_place(data, problem):
    with pytest.raises(PlanError) as caught:
        plan_from_bytes(data, "plan.json")
    assert str(caught.value) == f"plan.json: {problem}"
    assert caught.value.hint


def test_brackets_inside_texts_are_no_nesting():
    document = changed("warnings", ['[{"' * 200, "\\" * 3])
    assert plan_from_bytes(json.dumps(document).encode(), "plan.json").warnings == ('[{"' * 200, "\\" * 3)


def test_a_text_of_escaped_quotes_without_end_is_refused_at_once():
    with pytest.raises(PlanError, match="the text ends in the middle"):
        plan_from_bytes(b'"' + b'\\"' * 4_000_000, "plan.json")


def test_deep_nesting_is_refused_inside_a_thread_with_a_small_stack():
    caught = []

    def read():
        try:
            plan_from_bytes(b"[" * 200_000, "plan.json")
        except PlanError as error:
            caught.append(error)

    former = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(target=read)
        thread.start()
    finally:
        threading.stack_size(former)
    thread.join()
    assert str(caught[0]).endswith("nested more than 64 deep")


def test_the_most_rows_that_are_read_are_named_in_the_refusal_of_more():
    bounds = [*range(MAX_ROWS), None]
    table = [
        {"min_bytes": low, "max_bytes": high, "algorithm": "default"}
        for low, high in itertools.pairwise(bounds)
    ]
    plan = plan_from_document(changed("groups", 0, "allreduce", table), "plan.json")
    assert len(plan.groups[0].allreduce) == MAX_ROWS


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder, not a file"),
        (lambda path: os.mkfifo(path), "is a pipe or device, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a pipe or device, not a file"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
    ],
    ids=["missing", "folder", "pipe", "device", "link to itself"],
)
def test_what_is_no_file_is_refused_without_waiting(tmp_path, make, problem):
    path = tmp_path / "plan.json"
    make(path)
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    assert str(caught.value) == f"{path}: {problem}"


def test_a_row_without_a_bound_says_why_also_if_nobody_did():
    plan = plan_from_document(example(), "plan.json")
    assert plan.groups[0].allreduce[0].no_bound_reason == "one rank a node"
    assert plan.groups[1].allgather[0].no_bound_reason == "no bound was computed"


BLOCKED_IMPORTS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {"topotune"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import topotune
plan = topotune.load_plan(sys.argv[1])
from topotune.plan import *
assert plan_from_bytes(canonical_bytes(plan), "again") == plan
names = {name.partition(".")[0] for name in sys.modules}
print(sorted(name for name in names - sys.stdlib_module_names - {"topotune"} if not name.startswith("_")))
"""


def test_reading_a_plan_needs_the_standard_library_alone(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(TEXT)
    result = subprocess.run(
        [sys.executable, "-c", BLOCKED_IMPORTS, str(path)], capture_output=True, text=True, check=False
    )
    assert (result.stdout.strip(), result.stderr) == ("[]", "")
