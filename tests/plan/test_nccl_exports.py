"""What the plan says to NCCL: the table, the stock plugin's rows, the environment."""

import pytest
from hypothesis import given, settings
from nccl_plans import (
    ALL_TABLES,
    DEFAULT,
    DEFAULT_ONLY,
    GOLDEN,
    GOLDEN_FILES,
    LARGE,
    ON_GLOO,
    ONE_ROW,
    PLANS,
    RING,
    THREE_ROWS,
    exported,
    group,
    nccl,
    plan_of,
    table,
)
from plan_strategies import plans

from topotune.errors import InputFileError, UsageError
from topotune.plan import find_row
from topotune.plan.exports import ExportOptions, find_target, nccl_env
from topotune.plan.exports.job_environment import job_environment
from topotune.plan.exports.nccl_csv import CATCH_ALL, COLLECTIVES, LAST_BYTE, CsvRow, TunerCsv
from topotune.plan.exports.nccl_env import NcclEnvironment
from topotune.plan.exports.nccl_table import HEAD

TARGETS = ("nccl-tuner", "nccl-tuner-csv", "nccl-env")
GLOO = (
    "the plan was measured on gloo, which is no evidence about NCCL: nothing of it is exported, "
    "NCCL chooses by itself"
)
NOTHING = "the plan names none of NCCL's algorithms: NCCL chooses by itself"


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_exports_are_as_in_the_golden_files(name):
    target, plan = GOLDEN_FILES[name]
    assert exported(target, plan)[0] == (GOLDEN / name).read_text()


def test_every_golden_file_has_its_plan():
    assert {path.name for path in GOLDEN.iterdir()} == set(GOLDEN_FILES)


@settings(max_examples=60)
@given(plan=plans())
def test_what_was_exported_reads_back_and_exports_again_unchanged(plan):
    for name in TARGETS:
        target = find_target(name)
        try:
            document = target.from_plan(plan, ExportOptions(version="2.30")).document
        except UsageError:
            assert name == "nccl-tuner-csv"
            continue
        text = target.write(document)
        assert target.read(text, "it") == document
        assert target.write(target.read(text, "it")) == text


@pytest.mark.parametrize("name", PLANS)
def test_ranges_of_a_table_are_those_of_the_plan(name):
    target, plan = find_target("nccl-tuner"), PLANS[name]
    rows = target.from_plan(plan, ExportOptions()).document.rows
    wanted = [
        (row.min_bytes, row.max_bytes, row.params["algo"], row.params["proto"], row.params.get("channels"))
        for table in (plan.groups[0].allreduce,)
        for row in table
        if row.algorithm == "nccl"
    ]
    world = plan.groups[0].shape
    assert [
        (row.min_bytes, row.end_bytes, row.algo, row.proto, row.channels)
        for row in rows
        if (row.collective, row.num_ranks, row.num_nodes) == ("allreduce", world.num_ranks, world.num_nodes)
    ] == wanted


@pytest.mark.parametrize("plan", [DEFAULT_ONLY, ON_GLOO], ids=["default-only", "gloo"])
def test_a_plan_that_says_nothing_about_nccl_is_a_no_op_with_a_warning(plan):
    warning = (GLOO if plan is ON_GLOO else NOTHING,)
    text, warnings = exported("nccl-tuner", plan)
    assert text.splitlines()[0] == HEAD
    assert text.splitlines()[2:] == ["end 0"]
    assert warnings == warning
    text, warnings = exported("nccl-env", plan)
    assert [line for line in text.splitlines() if not line.startswith("#")] == []
    assert warnings == warning
    with pytest.raises(UsageError, match="with the stock plugin loaded it cannot") as caught:
        exported("nccl-tuner-csv", plan)
    assert caught.value.message.startswith(f"nccl-tuner-csv: {warning[0]}")


def test_rows_that_only_topotune_runs_are_left_out_and_told():
    plan = plan_of(allreduce=table(nccl("ring", "ll"), {"algorithm": "double_binary_tree"}, DEFAULT))
    text, warnings = exported("nccl-tuner", plan)
    assert text.splitlines()[2:] == ["row allreduce 16 2 0 1024 ring ll 0", "end 1"]
    assert warnings == (
        "allreduce: rows of topotune's own algorithms, which NCCL does not have, are left out: "
        "double_binary_tree (1); only the topotune backend runs them",
    )


def test_groups_that_nccl_cannot_tell_apart_are_left_to_it_unless_they_agree():
    alike = [group(4, 2, stride, allreduce=table(nccl("ring", "ll"))) for stride in (2, 4)]
    plan = plan_of(allreduce=table(RING), more_groups=alike)
    assert exported("nccl-tuner", plan)[0].splitlines()[2:-1] == [
        "row allreduce 16 2 0 inf ring simple 16",
        "row allreduce 4 2 0 inf ring ll 0",
    ]
    unlike = [alike[0], group(4, 2, 4, allreduce=table(nccl("tree", "ll")))]
    plan = plan_of(allreduce=table(RING), more_groups=unlike)
    text, warnings = exported("nccl-tuner", plan)
    assert text.splitlines()[2:-1] == ["row allreduce 16 2 0 inf ring simple 16"]
    assert warnings == (
        "allreduce: the plan has unlike tables for groups of 4 ranks on 2 nodes, which NCCL cannot "
        "tell apart: it chooses there by itself",
    )


def test_a_plan_of_another_nccl_is_exported_with_a_warning():
    assert exported("nccl-tuner", ONE_ROW, "2.27")[1] == ()
    assert exported("nccl-tuner", ONE_ROW, "2.30.7")[1] == (
        "the plan was measured with NCCL 2.27; what NCCL 2.30 runs under the same names may be slower "
        "than its own choice",
    )


def test_rows_that_nccl_2_21_would_take_unchecked_are_told():
    _, warnings = exported("nccl-tuner", THREE_ROWS, "2.21")
    assert (
        "NCCL 2.21 does not check what a tuner tells it: 2 of 3 rows are left to NCCL there" in warnings[-1]
    )


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("nccl-tuner", "2.20"),
        ("nccl-tuner", "2.31"),
        ("nccl-tuner-csv", "2.23"),
        ("nccl-env", "2.17"),
        ("nccl-env", "3"),
        ("nccl-env", "two"),
        ("nccl-env", "2.2７"),
    ],
)
def test_a_version_that_a_target_is_not_for_is_refused(target, version):
    with pytest.raises(UsageError, match="not a version of NCCL from 2"):
        exported(target, THREE_ROWS, version)


# The stock plugin's rows


def stock(rows, collective, message_bytes, num_nodes, num_ranks):
    """What the stock plugin runs, where NCCL has everything available: the first row that holds the call."""
    for row in rows:
        if (
            row.collective == collective
            and row.min_bytes <= message_bytes <= row.max_bytes
            and row.num_nodes in (-1, num_nodes)
            and row.num_ranks in (-1, num_ranks)
        ):
            return row.algo, row.proto, row.channels
    return None


@pytest.mark.parametrize("plan", [ONE_ROW, THREE_ROWS, LARGE, ALL_TABLES], ids=["1", "3", "200", "all"])
def test_the_stock_plugin_runs_what_the_plan_says_at_both_ends_of_every_range(plan):
    rows = find_target("nccl-tuner-csv").from_plan(plan, ExportOptions()).document.rows
    for one in plan.groups:
        for collective in ("allreduce", "reduce_scatter", "allgather"):
            for row in getattr(one, collective) or ():
                ends = [row.min_bytes, 2**63 if row.max_bytes is None else row.max_bytes - 1]
                for message_bytes in ends:
                    assert find_row(getattr(one, collective), message_bytes) == row
                    named = (
                        (row.params["algo"], row.params["proto"], row.params.get("channels", 64))
                        if row.algorithm == "nccl"
                        else ("ring", "simple", 64)
                    )
                    seen = (
                        collective.replace("_", ""),
                        message_bytes,
                        one.shape.num_nodes,
                        one.shape.num_ranks,
                    )
                    assert stock(rows, *seen) == named


def test_no_call_is_left_to_one_channel():
    rows = find_target("nccl-tuner-csv").from_plan(THREE_ROWS, ExportOptions()).document.rows
    for collective in COLLECTIVES:
        for message_bytes in (0, 1, 2**32, LAST_BYTE):
            for num_ranks in (1, 16, 1024):
                assert stock(rows, collective, message_bytes, 2, num_ranks)[2] > 1


def test_what_the_stock_plugin_cannot_leave_alone_is_told():
    _, warnings = exported("nccl-tuner-csv", LARGE)
    assert warnings == (
        "the stock plugin cannot leave calls to NCCL: sizes of allgather that the plan does not name, "
        "sizes of allreduce that the plan does not name, all of broadcast, all of "
        "reduce, and other communicators run as ring with simple, whatever NCCL would choose; "
        "--to nccl-tuner leaves them alone",
        "rows without channels get all channels of the communicator, since the stock plugin would run them "
        "on one",
    )


def test_rows_for_the_stock_plugin_without_a_catch_all_or_channels_cannot_be_made():
    for missing in range(len(CATCH_ALL)):
        with pytest.raises(ValueError, match="no last row holds"):
            TunerCsv(rows=CATCH_ALL[:missing] + CATCH_ALL[missing + 1 :])
    without = CsvRow(
        collective="allreduce", min_bytes=0, max_bytes=9, algo="tree", proto="ll", channels=-1, num_ranks=2
    )
    with pytest.raises(ValueError, match="allreduce from 0 names -1 channels: it would run on one"):
        TunerCsv(rows=(without, *CATCH_ALL))


ALL_ELSE = find_target("nccl-tuner-csv").write(TunerCsv(rows=CATCH_ALL))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("collective,min,max,algo,proto,channels,nodes,ranks", "'collective' is no collective: allreduce"),
        ("allreduce,0,9,ring,simple,8,1", "it has 7 fields, not 8 to 10"),
        ("allreduce,0,9,,simple,8,1,2", "it has an empty field, which the stock plugin skips"),
        ("allreduce,0,9,rinng,simple,8,1,2", "'rinng' is no algorithm: tree"),
        ("allreduce,0,9,ring,Simple,8,1,2", "'Simple' is no protocol: ll"),
        ("allreduce,0,9,ring,simple,65,1,2", "'65' is no whole number from -1 to 64"),
        ("allreduce,0,1e9,ring,simple,8,1,2", "'1e9' is no whole number from 0"),
        ("allreduce,9,0,ring,simple,8,1,2", "it runs from 9 down to 0"),
        ("allreduce," + " " * 250 + "0,9,ring,simple,8,1,2", "it has more than 254 bytes"),
    ],
)
def test_lines_that_the_stock_plugin_would_misread_are_refused(line, problem):
    with pytest.raises(InputFileError) as caught:
        find_target("nccl-tuner-csv").read(f"# mine\n{line}\n{ALL_ELSE}", "my.csv")
    assert caught.value.message.startswith(f"my.csv: line 2: {problem}")


def test_a_file_of_the_stock_plugin_without_a_catch_all_is_refused():
    with pytest.raises(InputFileError, match=r"my\.csv: no last row holds allreduce of all sizes"):
        find_target("nccl-tuner-csv").read("allreduce,0,4294967295,ring,simple,8,-1,-1\n", "my.csv")


# The environment


def variables(plan, version=None):
    target = find_target("nccl-env")
    translated = target.from_plan(plan, ExportOptions(version=version))
    return nccl_env.variables(translated.document), translated.warnings


def test_lists_go_by_collective_and_ring_is_always_in_them():
    found, warnings = variables(ALL_TABLES)
    assert found == {
        "NCCL_ALGO": "allreduce:Ring,Tree;reducescatter:Ring;allgather:Ring",
        "NCCL_PROTO": "allreduce:LL,Simple;reducescatter:Simple;allgather:Simple",
        "NCCL_MAX_CTAS": "16",
    }
    assert warnings == (
        "allreduce: NCCL chooses by itself at which sizes it runs Ring, Tree: the plan's sizes are lost; "
        "--to nccl-tuner keeps them",
        "NCCL_PROTO is for jobs on one node: on several, LL in it can corrupt data silently on EFA",
        "NCCL_ALGO holds for every communicator of the job, also for those that were not measured",
    )


@pytest.mark.parametrize(
    ("proto", "unasked"), [("ll", {"NCCL_ALGO"}), ("simple", {"NCCL_ALGO", "NCCL_PROTO"})]
)
def test_a_job_that_may_have_more_nodes_than_its_plan_is_given_no_list_with_ll(proto, unasked):
    plan = plan_of(num_nodes=1, allreduce=table(nccl("ring", proto)))
    assert "NCCL_PROTO" in variables(plan)[0]
    given = {variable.name for variable in job_environment(plan, "/plan.json").variables}
    assert {name for name in given if name.startswith("NCCL_")} == unasked


def test_one_list_for_all_collectives_before_2_24_and_only_of_full_plans():
    assert variables(ALL_TABLES, "2.23")[0] == {"NCCL_ALGO": "Ring,Tree", "NCCL_MAX_CTAS": "16"}
    found, warnings = variables(ONE_ROW, "2.23")
    assert found == {}
    assert warnings[0].startswith("before NCCL 2.24 a list holds for all collectives")


def test_a_collective_of_which_the_plan_leaves_a_size_to_nccl_is_not_named():
    found, warnings = variables(plan_of(allreduce=table(RING, DEFAULT), allgather=table(RING)))
    assert found == {"NCCL_ALGO": "allgather:Ring"}
    assert warnings[0].startswith("allreduce: the plan leaves some sizes to NCCL")


def test_protocols_are_never_written_for_several_nodes():
    found, warnings = variables(plan_of(allreduce=table(nccl("ring", "simple"))))
    assert found == {"NCCL_ALGO": "allreduce:Ring"}
    assert any("on EFA it can corrupt data silently" in warning for warning in warnings)
    for protos in ({"allreduce": ("Simple",)}, {"allreduce": ("LL", "Simple")}):
        with pytest.raises(ValueError, match=r"NCCL_PROTO: on several nodes .* \(EFA\)"):
            NcclEnvironment(version=(2, 27), num_nodes=2, protos=protos)


def test_ll128_is_never_written_as_a_protocol():
    found, warnings = variables(plan_of(num_nodes=1, allreduce=table(nccl("ring", "ll128"))))
    assert found == {"NCCL_ALGO": "allreduce:Ring"}
    assert any("LL128 in it switches off NCCL's check" in warning for warning in warnings)
    with pytest.raises(ValueError, match="LL128 there switches off"):
        NcclEnvironment(version=(2, 27), num_nodes=1, protos={"allreduce": ("LL128", "Simple")})


def test_a_list_of_algorithms_without_ring_cannot_be_made_or_read():
    with pytest.raises(ValueError, match="NCCL_ALGO: allreduce lacks Ring"):
        NcclEnvironment(version=(2, 27), num_nodes=1, algos={"allreduce": ("Tree",)})
    with pytest.raises(InputFileError, match=r"my\.conf: NCCL_ALGO: allgather lacks Ring"):
        find_target("nccl-env").read("NCCL_ALGO=allreduce:Tree,Ring;allgather:PAT\n", "my.conf")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("NCCL_ALGO=Ring,Tree\n", "NCCL_ALGO: NCCL 2.30 takes FUNCTION:LIST;FUNCTION:LIST"),
        (
            "# topotune: for NCCL 2.23 on 1 node\nNCCL_ALGO=allreduce:Ring\n",
            "NCCL_ALGO: NCCL 2.23 takes one list for all collectives",
        ),
        (
            "# topotune: for NCCL 2.22 on 1 node\nNCCL_ALGO=PAT,Ring\n",
            "NCCL_ALGO: NCCL 2.22 has no PAT",
        ),
        ("NCCL_ALGO=allreduce:Ring,Star\n", "NCCL_ALGO: 'Star' is none of Ring"),
        ("NCCL_ALGO=allreduce:Ring,Ring\n", "NCCL_ALGO: 'Ring,Ring' is no list of different names"),
        ("NCCL_ALGO=allreduce:Ring;allreduce:Ring\n", "NCCL_ALGO: allreduce stands twice"),
        ("NCCL_ALGO=broadcast:Ring\n", "NCCL_ALGO: 'broadcast' is none of allreduce"),
        ("NCCL_MAX_CTAS=65\n", "NCCL_MAX_CTAS: 65 is not from 1 to 64"),
        ("NCCL_MAX_CTAS=0x10\n", "NCCL_MAX_CTAS: '0x10' is no number of channels"),
        ("NCCL_ALGO=allreduce:Ring\nNCCL_ALGO=allreduce:Ring\n", "line 2: 'NCCL_ALGO' stands twice"),
        ("LD_PRELOAD=mine.so\n", "line 1: 'LD_PRELOAD' is no setting of a plan"),
        ("NCCL_PROTO=allreduce:Simple\n", "NCCL_PROTO: on several nodes"),
    ],
)
def test_settings_that_are_wrong_or_dangerous_are_refused(text, problem):
    with pytest.raises(InputFileError) as caught:
        find_target("nccl-env").read(text, "my.conf")
    assert caught.value.message.startswith(f"my.conf: {problem}")


def test_an_algorithm_that_the_version_does_not_have_is_refused():
    plan = plan_of(
        num_nodes=1, allreduce=table(RING), reduce_scatter=table(nccl("pat", "simple")), allgather=table(RING)
    )
    with pytest.raises(UsageError, match=r"the plan names pat, which NCCL 2\.22 does not have"):
        variables(plan, "2.22")
    assert variables(plan, "2.24")[0]["NCCL_ALGO"] == "allreduce:Ring;reducescatter:Ring,PAT;allgather:Ring"


def test_channels_are_written_only_where_every_row_of_a_full_plan_agrees():
    channels = "numbers of channels are left out: NCCL_MAX_CTAS holds for all sizes and collectives alike"
    found, warnings = variables(THREE_ROWS)
    assert "NCCL_MAX_CTAS" not in found
    assert channels in warnings
    wide = nccl("ring", "simple", 48)
    plan = plan_of(num_nodes=1, allreduce=table(wide), reduce_scatter=table(wide), allgather=table(wide))
    assert variables(plan, "2.25")[0]["NCCL_MAX_CTAS"] == "48"
    found, warnings = variables(plan, "2.24")  # which has 32 at most
    assert "NCCL_MAX_CTAS" not in found
    assert channels in warnings
