"""Plans as Open MPI's, MPICH's, Intel MPI's and UCC's settings."""

import re

import chosen_by
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi_golden import BASES, FILES, FOLDER, PLAN, exported, options
from mpi_plans import alternating, plan_of
from plan_strategies import plans

from topotune.errors import InputFileError, UsageError
from topotune.plan import find_row
from topotune.plan.exports import BaseFile, ExportOptions, find_target

TARGETS = [(name, version) for name, version in FILES.values()]
NAMES = sorted({name for name, _ in TARGETS})


def warnings_of(name, plan, version=None):
    return find_target(name).from_plan(plan, options(name, version)).warnings


@pytest.mark.parametrize("file", FILES)
def test_exports_are_the_golden_files(file):
    assert exported(*FILES[file]) == (FOLDER / file).read_text()


@pytest.mark.parametrize(("name", "version"), TARGETS)
@settings(max_examples=25, deadline=None)
@given(plan=plans())
def test_any_plan_is_read_back_as_it_was_written(name, version, plan):
    target = find_target(name)
    document = target.from_plan(plan, options(name, version)).document
    text = target.write(document)
    assert text.endswith("\n")
    assert target.read(text, "a file") == document
    assert target.write(target.read(text, "a file")) == text


def ends_of(rows):
    for row in rows:
        yield row.min_bytes
        yield 2 * row.min_bytes + 1 if row.max_bytes is None else row.max_bytes - 1


WORDS = {
    "ring": ("ring", 8, "ring", "ring"),
    "recursive_doubling": ("recursive_doubling", 1, "knomial", "recursive_doubling"),
    "halving_doubling": ("rabenseifner", 2, "sra_knomial", "reduce_scatter_allgather"),
}


@pytest.mark.parametrize(
    "rows",
    [
        [("ring", None)],
        [("recursive_doubling", 1000), ("default", 50_000), ("halving_doubling", None)],
        [("ring", 1), ("default", 2), ("ring", 3), ("recursive_doubling", None)],
        alternating(200),
    ],
    ids=["1 row", "3 rows", "rows of 1 byte", "200 rows"],
)
def test_both_ends_of_every_range_get_what_the_plan_says(rows):
    plan = plan_of(*rows)
    texts = {name: exported(name, plan=plan) for name in NAMES}
    text_form = exported("openmpi-tuned", "5.0", plan)
    for size in ends_of(plan.groups[0].allreduce):
        tuned, number, ucc, mpich = WORDS.get(find_row(plan.groups[0].allreduce, size).algorithm, (None,) * 4)
        assert chosen_by.openmpi_text(text_form, size) == tuned
        assert chosen_by.openmpi_json(texts["openmpi-tuned"], size) == tuned
        assert chosen_by.intel_mpi(texts["intel-mpi"], size, 4) == number
        assert chosen_by.ucc(texts["ucc"], size) == ucc
        own = "small" if size <= 9 else "large"
        expected = "recursive_doubling" if mpich == "reduce_scatter_allgather" and size < 4 else mpich or own
        assert chosen_by.mpich(texts["mpich-json"], size, 4) == expected
        composition = "composition_own" if mpich is None else "composition_beta"
        assert chosen_by.mpich(texts["mpich-ch4-json"], size, 4) == composition


@pytest.mark.parametrize("num_ranks", [1, 3, 5, 4096])
def test_communicators_of_other_sizes_keep_what_they_have(num_ranks):
    assert chosen_by.mpich(exported("mpich-json"), 2**22, num_ranks) == "large"
    assert chosen_by.intel_mpi(exported("intel-mpi"), 2**22, num_ranks) is None
    assert chosen_by.openmpi_han(exported("openmpi-han", "4.1"), 2**30, num_ranks) == "tuned"
    assert chosen_by.openmpi_han(exported("openmpi-han", "5.0"), 8191, num_ranks) == "han"


def test_han_is_hierarchical_where_the_plan_is():
    for version, own in (("4.1", "tuned"), ("5.0", "han")):
        text = exported("openmpi-han", version)
        said = [
            chosen_by.openmpi_han(text, size, 4) for size in (0, 8191, 8192, 65535, 65536, 2**24 - 1, 2**24)
        ]
        assert said == ["tuned", "tuned", own, own, "tuned", "tuned", "han"]


def test_mpich_keeps_its_own_choice_for_calls_that_an_algorithm_is_not_for():
    text = exported("mpich-json")
    assert chosen_by.mpich(text, 2**22, 4) == "ring"
    assert chosen_by.mpich(text, 2**22, 4, commutative=False, built_in=False) == "large"
    assert chosen_by.mpich(text, 2**18, 4) == "reduce_scatter_allgather"
    assert chosen_by.mpich(text, 2**18, 4, built_in=False) == "large"
    assert chosen_by.mpich(text, 2**18, 4, num_elements=3) == "recursive_doubling"
    compositions = exported("mpich-ch4-json")
    assert chosen_by.mpich(compositions, 2**24, 4) == "composition_alpha"
    assert chosen_by.mpich(compositions, 2**24, 4, commutative=False) == "composition_own"


def test_mpich_keeps_everything_but_allreduce_between_processes():
    target = find_target("mpich-json")
    own, written = (
        target.read(BASES["mpich-json"].decode(), "own"),
        target.read(exported("mpich-json"), "a file"),
    )
    assert [name for name, _ in written.branches] == [name for name, _ in own.branches]
    assert written.below("collective=barrier") == own.below("collective=barrier")
    inter = "comm_type=inter"
    assert written.below("collective=allreduce").below(inter) == own.below("collective=allreduce").below(
        inter
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [[("default", None)], [("default", 4096), ("native_allreduce", None)]])
def test_a_plan_of_defaults_changes_nothing(name, rows):
    plan = plan_of(*rows, ranks_per_node=(2, 2))
    text = exported(name, plan=plan)
    (warning,) = warnings_of(name, plan)
    assert warning.startswith("no row names an algorithm that ")
    assert warning.endswith(f"leaves every size to {warning.split(' that ')[1].split(' has')[0]}")
    for size in (0, 4095, 4096, 2**40):
        if name == "openmpi-tuned":
            assert chosen_by.openmpi_json(text, size) is None
            assert chosen_by.openmpi_text(exported(name, "4.1", plan), size) is None
        elif name == "openmpi-han":
            assert chosen_by.openmpi_han(text, size, 4) == "han"
        elif name == "intel-mpi":
            assert find_target(name).read(text, "a file").clauses == ()
        elif name == "ucc":
            assert chosen_by.ucc(text, size) is None
        else:
            assert find_target(name).read(text, "a file") == find_target(name).read(
                BASES[name].decode(), "own"
            )


def test_what_is_lost_is_said_with_the_sizes():
    assert warnings_of("openmpi-tuned", PLAN, "4.1") == (
        "the plan was measured on gloo (torch 2.13): that is no evidence about the algorithms of Open MPI; "
        "compare them on the cluster before the job relies on them",
        "Open MPI has nothing like hierarchical: its own decision stays for 16777216 B and more",
        "Open MPI takes no channels of ring: lost for 1048576 to 16777215 B",
        "Open MPI applies rules to user-defined operations that do not commute as well, and ring gives wrong "
        "results for those: leave the file out of jobs that have any",
        "up to Open MPI 5 this table of 4 ranks holds for any size of communicator",
    )


def test_ranges_without_a_counterpart_are_named_one_by_one():
    rows = [("bine" if index % 2 else "ring", 1000 * (index + 1)) for index in range(19)] + [("bine", None)]
    lost = [warning for warning in warnings_of("ucc", plan_of(*rows)) if "bine" in warning]
    assert lost == [
        "UCC has nothing like bine: its own decision stays for 1000 to 1999 B, 3000 to 3999 B, "
        "5000 to 5999 B, 7000 to 7999 B, 9000 to 9999 B, 11000 to 11999 B, … (10 ranges)"
    ]


def test_the_order_of_ranks_and_other_groups_are_said_to_be_lost():
    pair = {
        "shape": {"num_ranks": 2, "num_nodes": 1, "ranks_per_node": 2, "stride": 1},
        "allreduce": [{"min_bytes": 0, "max_bytes": None, "algorithm": "ring"}],
    }
    plan = plan_of(("ring", None), ranks_per_node=(2, 2), rank_order=[0, 2, 1, 3], groups=[pair])
    said = warnings_of("openmpi-tuned", plan, "5.0")
    assert "only the world's table is exported to Open MPI; left out: 2 ranks on 1 node" in said
    assert "the plan's order of ranks is not exported to Open MPI: give it to the launcher" in said
    as_json = find_target("openmpi-tuned").from_plan(plan, ExportOptions()).document
    assert [(table.num_ranks, table.distribution) for table in as_json.tables] == [
        (2, "single-node"),
        (4, "any"),
    ]
    assert not any("left out" in warning for warning in warnings_of("openmpi-tuned", plan))


def test_open_mpi_4_is_never_given_an_algorithm_that_aborts_it():
    plan = plan_of(("native_allgather_reduce", None))
    assert chosen_by.openmpi_text(exported("openmpi-tuned", "4.1", plan), 5) is None
    assert chosen_by.openmpi_text(exported("openmpi-tuned", "5.0", plan), 5) == "gathering"


def test_hierarchies_that_are_not_by_node_are_left_to_han():
    across = {"groups": [[0], [1, 2, 3]]}
    plan = plan_of(("hierarchical", None, across), ranks_per_node=(2, 2))
    assert chosen_by.openmpi_han(exported("openmpi-han", "4.1", plan), 5, 4) == "tuned"
    assert "Open MPI's HAN has nothing like hierarchical: its own decision stays for 0 B and more" in (
        warnings_of("openmpi-han", plan, "4.1")
    )


def test_han_says_where_it_does_nothing():
    one_node = warnings_of("openmpi-han", plan_of(("ring", None)), "4.1")
    assert "the plan is for one node, and HAN leaves communicators of one node alone" in one_node
    plan = plan_of(("hierarchical", None, {"groups": [[0], [1, 2, 3]]}), ranks_per_node=(1, 3))
    assert (
        "nodes have from 1 to 3 ranks, and where nodes differ HAN falls back to flat algorithms"
        in warnings_of("openmpi-han", plan, "4.1")
    )


def test_sizes_beyond_32_bits_are_cut_or_joined_and_said():
    rows = [("ring", 2**31), ("recursive_doubling", 2**40), ("default", None)]
    intel = exported("intel-mpi", plan=plan_of(*rows))
    assert "8:0-2147483647@4'" in intel
    assert "Intel MPI's ranges end at 2147483647 B; above it decides by itself" in (
        warnings_of("intel-mpi", plan_of(*rows))
    )
    text = exported("mpich-json", plan=plan_of(*rows))
    assert chosen_by.mpich(text, 2**31 - 1, 4) == "ring"
    assert chosen_by.mpich(text, 2**41, 4) == "recursive_doubling"
    joined = "MPICH cannot tell sizes above 2147483647 B apart: the choice at that size holds for all beyond"
    assert joined in warnings_of("mpich-json", plan_of(*rows))
    assert joined not in warnings_of("mpich-json", plan_of(("ring", 2**31), ("default", None)))


def test_ucc_is_told_of_gpu_buffers():
    plan = plan_of(("ring", 4096), ("default", None), device_kind="cuda (NVIDIA H200)")
    assert "UCC_TL_UCP_TUNE=allreduce:0-4096:cuda:@ring\n" in exported("ucc", plan=plan)
    assert any("only tl/ucp is told" in warning for warning in warnings_of("ucc", plan))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", ["1.0", "99.0", "new", "4"])
def test_versions_that_an_export_is_not_for_are_refused(name, version):
    with pytest.raises(UsageError, match=rf"^--for {re.escape(version)}: "):
        find_target(name).from_plan(PLAN, options(name, version))


@pytest.mark.parametrize("name", sorted(BASES))
def test_mpich_needs_a_file_of_its_own(name):
    target = find_target(name)
    with pytest.raises(
        UsageError, match=rf"^--to {name}: MPICH takes a file for all collectives or none"
    ) as raised:
        target.from_plan(PLAN, ExportOptions())
    assert raised.value.hint.startswith("--base FILE: ")
    other = BASES["mpich-json" if name == "mpich-ch4-json" else "mpich-ch4-json"]
    for data in (other, b"\x7fELF and nothing of MPICH's", b'\0{"collective=allreduce"', b"{}"):
        with pytest.raises(InputFileError, match=r"^libmpi\.so: "):
            target.from_plan(PLAN, ExportOptions(base=BaseFile(source="libmpi.so", data=data)))


@pytest.mark.parametrize("name", sorted(BASES))
def test_mpichs_own_file_is_found_in_its_library(name):
    posix = b'{"collective=allreduce":{"comm_type=intra":{"algorithm=MPIDI_POSIX_own":{}}}}'
    library = b"\x7fELF\0\0" + b"\0".join([posix, *BASES.values(), b"the end"])
    target = find_target(name)
    options_ = ExportOptions(base=BaseFile(source="libmpi.so", data=library))
    assert target.write(target.from_plan(PLAN, options_).document) == exported(name)


HEAD = "1 2 1 4\n"
BROKEN = [
    ("openmpi-tuned", "", "ends where the number of collectives should stand"),
    ("openmpi-tuned", "2", "line 1: the number of collectives is '2', not a whole number from 1 to 1"),
    (
        "openmpi-tuned",
        HEAD + "1\n8 3 0 0",
        "line 3: a row's first size is '8', not a whole number from 0 to 0",
    ),
    (
        "openmpi-tuned",
        HEAD + "1\n0 8 0 0",
        "line 3: a row's algorithm is '8', not a whole number from 0 to 7",
    ),
    ("openmpi-tuned", HEAD + "1\n0 03 0 0", "line 3: a row's algorithm is '03', not"),
    (
        "openmpi-tuned",
        HEAD + "2\n0 3 0 0\n0 4 0 0",
        "line 4: a row's first size is '0', not a whole number from 1",
    ),
    ("openmpi-tuned", HEAD + "1\n0 3 0 0 7", "line 3: goes on with '7' where it should end"),
    ("openmpi-tuned", HEAD + "9" * 30, "line 2: the number of rows is '999"),
    ("openmpi-tuned", "x" * (2**22 + 1), "has 4194305 characters, more than 4194304"),
    ("openmpi-tuned", '{"rule_file_version": 2}', "lacks the key 'module'"),
    ("openmpi-han", "1 2 1 2 1 1 1 0 sm", "line 1: the component is 'sm', not one of tuned, han"),
    (
        "openmpi-han",
        "1 2 1 2 1 2 1 0 han",
        "line 1: a communicator size is '2', not a whole number from 1 to 1",
    ),
    ("mpich-json", '{"a": 1}', "a: is the number 1, not an object"),
    ("intel-mpi", "export LD_PRELOAD='x'", "line 1: is no export I_MPI_ADJUST_ALLREDUCE='…'"),
    ("intel-mpi", "export I_MPI_ADJUST_ALLREDUCE='1:9-8@4'", "line 1: '1:9-8@4' is out of bounds"),
    ("intel-mpi", "export I_MPI_ADJUST_ALLREDUCE='1:9@4'", "line 1: '1:9@4' is no algorithm:from-to@ranks"),
    ("ucc", "", "holds no section of a team: [team_size=…]"),
    ("ucc", "UCC_TL_UCP_TUNE=0", "line 1: begins no section of a team: 'UCC_TL_UCP_TUNE=0'"),
    (
        "ucc",
        "[team_size=4 nnodes=1]\nUCC_CLS=all",
        "line 2: is no variable that an export sets once: 'UCC_CLS=all'",
    ),
    (
        "ucc",
        "[team_size=4 nnodes=1]\nUCC_TL_UCP_TUNE=allreduce:0-0:host:@ring",
        "UCC_TL_UCP_TUNE: 'allreduce",
    ),
    (
        "ucc",
        "[team_size=4 nnodes=1]\nUCC_TL_UCP_TUNE=allreduce:0-1:host:@best",
        "UCC_TL_UCP_TUNE: 'allreduce",
    ),
    ("ucc", "[team_size=4 nnodes=1]\nUCC_TL_UCP_ALLREDUCE_KN_RADIX=4", "sets a radix that is not 2"),
]


@pytest.mark.parametrize(("name", "text", "problem"), BROKEN, ids=range(len(BROKEN)))
def test_files_that_say_something_else_are_refused_by_place(name, text, problem):
    with pytest.raises(InputFileError) as raised:
        find_target(name).read(text, "a file")
    assert raised.value.message.startswith(f"a file: {problem}")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_read_as_what_they_say(name, data):
    target = find_target(name)
    text = exported(name)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from(["", "9", "-", "\0", "{", " "])) + text[at + 1 :]
    try:
        document = target.read(damaged, "a file")
    except InputFileError:
        return
    assert target.read(target.write(document), "a file") == document


def test_each_target_says_how_it_is_used():
    for name in NAMES:
        assert "plan.out" in find_target(name).how_to_use("plan.out")
