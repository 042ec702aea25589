import pytest

from topotune.bounds import graph_from_topology, optima
from topotune.errors import UsageError
from topotune.topology import Link, Source, Topology, Vertex
from topotune.topology.what_if import with_nic, with_nodes, with_rate, without

GB = 1e9


def both_ways(a, b, rate, kind="pcie"):
    link = Link(src=a, dst=b, kind=kind, bandwidth_bytes_per_s=rate, origin="spec")
    return [link, Link(src=b, dst=a, kind=kind, bandwidth_bytes_per_s=rate, origin="spec")]


def box():
    """Four GPUs on a switch of 300 GB/s each, one NIC of 200 Gbit/s."""
    gpus = [Vertex(id=f"gpu{i}", kind="gpu", node="box", index=i) for i in range(4)]
    others = [
        Vertex(id="nvs", kind="nvswitch", node="box"),
        Vertex(id="nic0", kind="nic", node="box", speed=200e9, link_layer="InfiniBand"),
    ]
    links = [link for gpu in gpus for link in both_ways(gpu.id, "nvs", 300 * GB, "nvlink")]
    links += both_ways("nic0", "nvs", 1000 * GB)
    return Topology(vertices=(*gpus, *others), links=tuple(links), source=Source(kind="made up"))


def busbw(topology):
    return optima(graph_from_topology(topology)).allreduce.busbw_bytes_per_s / GB


def test_a_dot_serves_for_the_slash_behind_a_node():
    whole = with_nodes(box(), 2)
    assert with_rate(whole, "n1.nic0=half").links == with_rate(whole, "n1/nic0=half").links
    assert without(whole, "n1.nic0:fabric").links == without(whole, "n1/nic0:fabric").links
    with pytest.raises(UsageError, match=r"there is no vertex 'n1\.nic9'"):
        without(whole, "n1.nic9")


def test_nodes_are_copies_joined_by_their_nics():
    two = with_nodes(box(), 2)
    assert [vertex.id for vertex in two.vertices if vertex.kind == "nic"] == ["n0/nic0", "n1/nic0"]
    # Each box must send and receive the whole message over its one NIC of 25 GB/s.
    assert busbw(two) == pytest.approx(25 * 2 * 7 / 8)
    assert "n1/gpu3" in {vertex.id for vertex in two.vertices}
    assert "2 such nodes" in two.warnings[-1]


def test_another_nic_on_each_node_doubles_what_they_exchange():
    assert busbw(with_nodes(with_nic(box()), 2)) == pytest.approx(2 * busbw(with_nodes(box(), 2)))


def test_one_node_keeps_its_optimum():
    assert busbw(with_nodes(box(), 1)) == pytest.approx(busbw(box())) == pytest.approx(300)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("n1/nic0=half", 12.5),
        ("n1/nic0:fabric=0.5", 12.5),
        ("n1/nic0=100Gbit", 12.5),
        ("n1/nic0:fabric=quarter", 6.25),
        ("n1/gpu0=double", 25),
    ],
)
def test_a_slower_link_costs_what_the_cut_says(change, expected):
    changed = with_rate(with_nodes(box(), 2), change)
    assert busbw(changed) == pytest.approx(expected * 2 * 7 / 8)
    assert change.rpartition("=")[0] in changed.warnings[-1]


def test_without_its_links_a_gpu_cannot_take_part():
    with pytest.raises(ValueError, match=r"n0/gpu1.* has no link"):
        optima(graph_from_topology(without(with_nodes(with_nic(box()), 2), "n0/gpu1")))


def test_without_one_of_two_nics_half_is_left():
    two = with_nodes(with_nic(box()), 2)
    assert busbw(without(two, "n0/nic0+1:fabric")) == pytest.approx(busbw(two) / 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: without(box(), "gpu9"), "there is no vertex 'gpu9'"),
        (lambda: without(box(), "gpu0:gpu1"), "there is no link"),
        (lambda: without(box(), "a:b:c:d"), "there is no vertex"),
        (lambda: with_rate(box(), "gpu0"), "names no new rate"),
        (lambda: with_rate(box(), "gpu0=fast"), "'fast' is no rate"),
        (lambda: with_rate(box(), "gpu0=0"), "a factor is above 0"),
        (lambda: with_rate(box(), "gpu0=-1"), "a factor is above 0"),
        (lambda: with_rate(box(), "gpu0=nan"), "a factor is above 0"),
        (lambda: with_nodes(box(), 0), "0 nodes"),
        (lambda: with_nodes(with_nodes(box(), 2), 2), "this one has 2"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_value(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_nodes_without_a_known_line_rate_are_refused_by_the_nic():
    blind = Topology(
        vertices=(Vertex(id="cpu", kind="cpu", node="x"), Vertex(id="eth0", kind="nic", node="x")),
        links=tuple(both_ways("cpu", "eth0", GB)),
        source=Source(kind="made up"),
    )
    with pytest.raises(UsageError, match="line rate of eth0 is not known"):
        with_nodes(blind, 2)
    with pytest.raises(UsageError, match="is not known"):
        with_rate(
            Topology(
                vertices=blind.vertices,
                links=(Link(src="cpu", dst="eth0", kind="pcie"),),
                source=Source(kind="made up"),
            ),
            "cpu:eth0=half",
        )


def test_ids_with_colons_are_understood():
    bus = Topology(
        vertices=(
            Vertex(id="0000:17:00.0", kind="gpu", node="x"),
            Vertex(id="0000:65:00.0", kind="gpu", node="x"),
        ),
        links=tuple(both_ways("0000:17:00.0", "0000:65:00.0", GB)),
        source=Source(kind="made up"),
    )
    assert without(bus, "0000:17:00.0:0000:65:00.0").links == ()
