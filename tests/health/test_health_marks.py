"""What was measured against the marks of a profile: each kind of mark, and what cannot be judged."""

import pytest

from topotune.health.against_marks import mark_findings
from topotune.health.checked import check_measured
from topotune.links import Measurement
from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_topology

GIB = 2**30


def of_collectives(*figures):
    return Measurement(num_ranks=0, node_of_rank=(), node_names=(), pairs=(), collectives=figures)


def of_links(num_ranks, *figures, **facts):
    return Measurement(
        num_ranks=num_ranks,
        node_of_rank=(),
        node_names=(),
        pairs=(),
        link_figures=figures,
        facts={name: str(value) for name, value in facts.items()},
    )


def allreduce(gb_per_s, size=16 * GIB, *, num_ranks=8, num_nodes=1):
    busbw = gb_per_s * 1e9
    return CollectiveFigure(
        collective="allreduce",
        message_bytes=size,
        time_s=size / busbw * 2 * (num_ranks - 1) / num_ranks,
        num_ranks=num_ranks,
        num_nodes=num_nodes,
        busbw_bytes_per_s=busbw,
    )


def copy(gb_per_s, src, dst, method="host_to_device_memcpy_ce"):
    return LinkFigure(src=src, dst=dst, method=method, bandwidth_bytes_per_s=gb_per_s * 1e9)


def found(measurement, profile="azure-nd96isr_h100_v5"):
    return [
        (
            finding.code,
            finding.severity,
            None if finding.cost_percent is None else round(finding.cost_percent, 1),
        )
        for finding in mark_findings(measurement, load_profile(profile))
    ]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param([allreduce(475)], [], id="healthy"),
        pytest.param([allreduce(230)], [("allreduce-below-mark", "error", 50.0)], id="half"),
        pytest.param([allreduce(450)], [("allreduce-below-mark", "warning", 2.2)], id="within the noise"),
        pytest.param([allreduce(455), allreduce(470)], [], id="the best run of several counts"),
        pytest.param([allreduce(300, GIB // 8)], [("mark-not-judged", "info", None)], id="too small"),
        pytest.param([allreduce(470, GIB // 8)], [], id="small, and reached all the same"),
        pytest.param([allreduce(100, num_ranks=16, num_nodes=2)], [], id="of another number of nodes"),
        pytest.param([allreduce(100, num_nodes=8)], [], id="one GPU on each of eight nodes"),
        pytest.param(
            [allreduce(100, num_nodes=None)], [("allreduce-below-mark", "error", 78.3)], id="nodes not said"
        ),
        pytest.param([allreduce(100, num_ranks=4)], [], id="half of the GPUs"),
    ],
)
def test_an_allreduce_is_held_against_the_mark_of_its_shape(figures, expected):
    assert found(of_collectives(*figures)) == expected


def test_a_mark_of_two_nodes_without_a_size_is_judged_by_large_messages():
    two = {"num_ranks": 16, "num_nodes": 2}
    slow, small = allreduce(90, 8 * GIB, **two), allreduce(90, GIB // 16, **two)
    assert found(of_collectives(slow), "gcp-a3-megagpu-8g") == [("allreduce-below-mark", "error", 40.0)]
    assert found(of_collectives(small), "gcp-a3-megagpu-8g") == [("mark-not-judged", "info", None)]


def test_a_finding_names_both_values_the_source_and_what_to_do():
    (finding,) = mark_findings(of_collectives(allreduce(230)), load_profile("azure-nd96isr_h100_v5"))
    assert finding.evidence == (
        "allreduce of 8 ranks on 1 node reaches 230 GB/s of bus bandwidth at 16 GiB, and a healthy "
        "azure-nd96isr_h100_v5 has at least 460 GB/s (Azure/azurehpc-health-checks, "
        "conf/nd96isr_h100_v5.conf)"
    )
    assert "NCCL_TOPO_FILE" in finding.advice


def test_copies_are_judged_gpu_by_gpu_and_by_the_best_of_their_figures():
    measurement = of_links(
        4,
        copy(55, None, 0),
        copy(12.4, None, 1),
        copy(30, None, 2),
        copy(54, None, 2, "host_to_device_memcpy_sm"),
        copy(20, None, 3, "host_to_all_memcpy_ce"),
        copy(26, 3, None, "device_to_host_memcpy_ce"),
    )
    findings = mark_findings(measurement, load_profile("azure-nd96isr_h100_v5"))
    assert [(finding.where, finding.evidence.split(", and")[0]) for finding in findings] == [
        ("copies from host to GPU", "GPU 1 12.4 GB/s"),
        ("copies from GPU to host", "GPU 3 26 GB/s"),
    ]


@pytest.mark.parametrize(
    ("figure", "facts", "expected"),
    [
        pytest.param((49, 2**23, None), {}, [], id="healthy"),
        pytest.param((23.75, 2**23, None), {}, [("port-below-mark", "error", 6.2)], id="half, one of eight"),
        pytest.param((94, 2**23, "sum"), {}, [("port-below-mark", "warning", 0.1)], id="both ways together"),
        pytest.param((2, 1024, None), {}, [], id="of small messages"),
        pytest.param((12, 2**23, None), {"link_type": "Ethernet"}, [], id="through another port"),
    ],
)
def test_a_port_is_held_against_the_mark_of_one(figure, facts, expected):
    rate, size, duplex = figure
    link = LinkFigure(
        src=0,
        dst=1,
        method="RDMA_Write BW Test",
        bandwidth_bytes_per_s=rate * 1e9,
        message_bytes=size,
        duplex=duplex,
    )
    assert found(of_links(2, link, **facts)) == expected


@pytest.mark.parametrize(
    ("gb_per_s", "expected"),
    [(450, []), (200, [("slower-than-published", "warning", 58.6)])],
    ids=["as published", "far below"],
)
def test_published_figures_of_the_machine_are_compared_at_the_largest_size_of_both(gb_per_s, expected):
    assert (
        found(of_collectives(allreduce(gb_per_s), allreduce(gb_per_s, 8 * GIB)), "aws-p5.48xlarge")
        == expected
    )


def test_the_machine_is_recognised_by_its_topology_and_not_by_a_measurement():
    slow = of_collectives(allreduce(100))
    alone = check_measured(slow, "auto")
    assert alone.profile is not None
    assert alone.profile.startswith("a measurement does not show what machine it is of")
    topology = machine_topology(load_profile("azure-nd96isr_h100_v5"))
    both = check_measured(slow, "azure-nd96isr_h100_v5", topology)
    assert "allreduce-below-mark" in {finding.code for finding in both.findings}
