"""Nodes against the profile of the machine that they are said to be."""

from dataclasses import replace

import pytest
from hosts import Host, by_code, grave

from topotune.errors import UsageError
from topotune.health import examine
from topotune.health.checked import check_topology
from topotune.topology import NvlinkPort, Source, Topology, Vertex
from topotune.topology.catalog import load_profile, shipped_profiles
from topotune.topology.profile_topology import machine_topology


@pytest.mark.parametrize("name", [profile.name for profile in shipped_profiles()])
def test_a_machine_as_its_profile_says_gives_no_warning(name):
    profile = load_profile(name)
    assert grave(examine(machine_topology(profile), profile=profile).findings) == set()


def without(topology, *ids):
    return replace(
        topology,
        vertices=tuple(vertex for vertex in topology.vertices if vertex.id not in ids),
        links=tuple(link for link in topology.links if not {link.src, link.dst} & set(ids)),
        ranks=(),
    )


def test_a_missing_adapter_costs_what_the_bound_loses():
    profile = load_profile("azure-nd96isr_h100_v5")
    sound = machine_topology(profile)
    nics = [vertex.id for vertex in sound.vertices if vertex.kind == "nic"]
    finding = by_code(examine(without(sound, nics[3]), profile=profile).findings, "fewer-nics")
    assert finding.severity == "error"
    assert finding.evidence == "7 infiniband ports of 400 Gbit/s are up, and a azure-nd96isr_h100_v5 has 8"
    assert finding.cost_percent == pytest.approx(12.5, abs=0.1)


def test_a_missing_gpu_is_named_with_both_counts():
    profile = load_profile("dgx-h100")
    sound = machine_topology(profile)
    gpus = [vertex.id for vertex in sound.vertices if vertex.kind == "gpu"]
    finding = by_code(examine(without(sound, gpus[0]), profile=profile).findings, "fewer-gpus")
    assert finding.evidence.startswith("7 GPUs, and a dgx-h100 has 8")


def test_gpus_that_a_container_hides_are_no_missing_ones():
    profile = load_profile("dgx-h100")
    sound = machine_topology(profile)
    gpus = [vertex.id for vertex in sound.vertices if vertex.kind == "gpu"]
    one = without(sound, *gpus[1:])
    hidden = replace(one, source=replace(one.source, facts={**one.source.facts, "num_gpus_hidden": 7}))
    finding = by_code(examine(hidden, profile=profile).findings, "fewer-gpus")
    assert finding.severity == "info"
    assert finding.evidence == "1 GPUs, and a dgx-h100 has 8: 7 are hidden from this process"


def with_nics(topology, **changes):
    return replace(
        topology,
        vertices=tuple(
            replace(vertex, **changes) if vertex.kind == "nic" else vertex for vertex in topology.vertices
        ),
    )


def test_adapters_that_are_all_slower_are_counted_and_have_nothing_to_be_held_against():
    profile = load_profile("azure-nd96isr_h100_v5")
    slow = with_nics(machine_topology(profile), speed=100e9)
    finding = by_code(examine(slow, profile=profile).findings, "fewer-nics")
    assert finding.evidence.startswith(
        "0 infiniband ports of 400 Gbit/s are up and 8 slower, and a azure-nd96isr_h100_v5 has 8"
    )
    assert finding.cost_percent is None
    assert "without any there is nothing to compare" in finding.evidence


def test_adapters_of_the_other_link_layer_are_not_those_of_the_profile():
    profile = load_profile("azure-nd96isr_h100_v5")
    other = with_nics(machine_topology(profile), link_layer="Ethernet")
    assert by_code(examine(other, profile=profile).findings, "fewer-nics").evidence.startswith(
        "0 infiniband ports of 400 Gbit/s are up, "
    )


@pytest.mark.parametrize(("name", "index", "should"), [("a6000-4gpu", 0, 4), ("mi250x-ex235a", 1, 6)])
def test_nvlinks_of_a_product_that_is_not_known_are_held_against_the_profile(name, index, should):
    profile = load_profile(name)
    found = []
    for active in (should, should - 1):
        ports = tuple(NvlinkPort(link=link, active=link < active) for link in range(7))
        one = Vertex(id="a/gpu", kind="gpu", node="a", index=index, model="a new one", nvlink_ports=ports)
        topology = Topology(vertices=(one,), links=(), source=Source(kind="test"))
        found.append(
            [each for each in examine(topology, profile=profile).findings if each.code == "nvlink-down"]
        )
    assert found[0] == []
    (finding,) = found[1]
    assert finding.severity == "error"
    assert finding.evidence.startswith(
        f"{should - 1} NVLinks are active, and each such GPU of a {name} has {should}; cost not known: "
    )


def test_auto_says_for_what_it_took_the_machine(tmp_path):
    host = Host(tmp_path)
    host.file("sys/class/dmi/id/sys_vendor", "NVIDIA")
    host.file("sys/class/dmi/id/product_name", "DGXA100 920-23687-2530-000")
    check = check_topology(host.topology(), profile="auto")
    assert check.profile is not None
    assert "dgx-a100" in check.profile


def test_a_profile_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        check_topology(Host(tmp_path).topology(), profile="nowhere")
