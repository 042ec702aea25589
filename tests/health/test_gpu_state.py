"""What a GPU's driver says holds it back is told, without a cost that nobody can prove."""

from dataclasses import replace

import pytest

from topotune.health import examine
from topotune.topology import Link, Source, Topology, Vertex
from topotune.topology.model import CLOCK_LIMITS, NVLINK_ERRORS, POWER_DEFAULT_W, POWER_LIMIT_W

CODES = {"power-limit-lowered", "clocks-held", "nvlink-errors"}


def machine(*attributes, links=()):
    gpus = tuple(
        Vertex(id=f"n/gpu/{at}", kind="gpu", node="n", index=at, attributes=given)
        for at, given in enumerate(attributes)
    )
    return Topology(vertices=gpus, links=links, source=Source(kind="test"))


def found(topology):
    return {one.code: one for one in examine(topology).findings if one.code in CODES}


def power(limit, usual="700"):
    return {POWER_LIMIT_W: limit, POWER_DEFAULT_W: usual}


def test_gpus_that_may_draw_less_than_their_default_are_named_with_both_figures():
    finding = found(machine(power("500"), power("700"), power("500")))["power-limit-lowered"]
    assert (finding.severity, finding.cost_percent) == ("info", None)
    assert finding.where == "GPU 0, GPU 2 of node n"
    assert finding.evidence.startswith("may draw 500 W, and its default is 700 W")


@pytest.mark.parametrize("attributes", [power("700"), power("750"), power("", ""), power("low"), {}])
def test_gpus_at_their_default_or_above_or_without_figures_are_no_finding(attributes):
    assert found(machine(attributes)) == {}


def test_clocks_that_are_held_down_are_told_with_the_drivers_reasons():
    finding = found(machine({CLOCK_LIMITS: "thermal, power brake"}, {}))["clocks-held"]
    assert finding.where == "GPU 0 of node n"
    assert "thermal, power brake" in finding.evidence


def test_errors_of_nvlinks_are_told_by_the_gpu_that_counts_them():
    there = Link(src="n/gpu/0", dst="n/gpu/1", kind="nvlink", attributes={NVLINK_ERRORS: "replay 3"})
    back = replace(there, src="n/gpu/1", dst="n/gpu/0", attributes={})
    finding = found(machine({}, {}, links=(there, back)))["nvlink-errors"]
    assert finding.where == "GPU 0 of node n"
    assert "GPU 0 to GPU 1: replay 3" in finding.evidence
    assert found(machine({}, {}, links=(replace(there, attributes={}), back))) == {}
