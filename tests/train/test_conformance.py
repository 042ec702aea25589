import math
import warnings

import conformance_cases
import gloo_world
import pytest
import torch
import torch.distributed as dist
from conformance_cases import CASES, NUM_RANKS, run_case
from job_plan import job_plan

import topotune
from topotune.train.calls import CALLS, OLD_NAMES

pytestmark = pytest.mark.gloo


def run_cases(rank, num_ranks, store, backend, plan):
    from topotune.train.usage import REPORT

    warnings.simplefilter("ignore")  # half of torch's names are deprecated, and must work all the same
    topotune.use(plan)
    dist.init_process_group(backend)
    # A barrier of gloo raises what collectives of its own group before it failed with, if they end late.
    between_cases = dist.new_group(backend="gloo")
    outcomes = []
    for one in CASES:
        before = REPORT.calls()
        outcome = run_case(one, rank)
        outcomes.append((outcome, frozenset(REPORT.calls() - before)))
        dist.barrier(group=between_cases)
    dist.destroy_process_group()
    return outcomes


@pytest.fixture(scope="module")
def outcomes():
    """backend → outcomes of all cases on all ranks."""
    return {
        backend: gloo_world.run_world(NUM_RANKS, run_cases, backend, job_plan(NUM_RANKS), timeout_s=170)
        for backend in ("gloo", "topotune")
    }


@pytest.mark.parametrize("index", range(len(CASES)), ids=[one.name for one in CASES])
def test_topotune_does_what_gloo_does(outcomes, index):
    for rank in range(NUM_RANKS):
        (kind, value, why), _ = outcomes["gloo"][rank][index]
        (our_kind, our_value, our_why), _ = outcomes["topotune"][rank][index]
        if not CASES[index].same:
            assert (our_kind, our_value) != (kind, value)
            continue
        assert our_kind == kind, why or our_why
        if kind == "refusal":
            assert our_value == value
        else:
            assert_equal(our_value, value)


def assert_equal(ours, theirs):
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_equal(our, their)
    elif isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-7)
    else:
        assert ours == theirs


@pytest.mark.parametrize("index", range(len(CASES)), ids=[one.name for one in CASES])
def test_every_call_is_counted_as_the_table_says(outcomes, index):
    counted = [outcomes["topotune"][rank][index][1] for rank in range(NUM_RANKS)]
    assert frozenset().union(*counted) == CASES[index].through
    assert all(not outcomes["gloo"][rank][index][1] for rank in range(NUM_RANKS))


def test_the_table_in_the_documentation_is_up_to_date():
    text = conformance_cases.DOCUMENT.read_text()
    assert conformance_cases.document_with_table(text) == text, "python tests/train/conformance_cases.py"


def test_every_communication_method_of_torch_passes_through_us():
    not_communication = {
        "abort", "boxed", "get_group_store", "merge_remote_group", "name", "rank", "set_timeout", "shutdown",
        "size", "split_group", "unbox",
    }  # fmt: skip
    methods = {
        name
        for name in dir(dist.ProcessGroup)
        if (not name.startswith("_") or name in OLD_NAMES)
        and callable(getattr(dist.ProcessGroup, name))
        and not isinstance(getattr(dist.ProcessGroup, name), type)
    }
    assert methods - not_communication == {call.method for call in CALLS} | set(OLD_NAMES)
    assert all(name in torch.distributed.ProcessGroup.__dict__ for name in OLD_NAMES)
