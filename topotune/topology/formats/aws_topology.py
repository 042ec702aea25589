"""AWS ``describe-instance-topology``: on which network nodes EC2 instances are.

The list of an instance's network nodes runs from the top layer down; the last is nearest. Two instances with
the same last one are as near as can be. Network nodes of different zones never match.

Source: AWS, EC2 API reference, DescribeInstanceTopology.
"""

import re
from itertools import pairwise

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.fabric_tree import MAX_HOSTS, FabricTree
from topotune.topology.formats.reading import Reader, Reading

_KEYS = {
    "InstanceType": "aws.instance_type",
    "GroupName": "aws.placement_group",
    "ZoneId": "aws.zone_id",
    "AvailabilityZone": "aws.availability_zone",
    "CapacityBlockId": "aws.capacity_block",
}
"""Of an instance → attributes of the host's adapter."""

_MAX_LAYERS = 16
_START = re.compile(r"[\[{]")


def _recognise(text: str) -> bool:
    return '"NetworkNodes"' in text and '"InstanceId"' in text


def read(text: str, source: str) -> Reading:
    """The answer, as JSON → what it proves.

    Raises:
        InputFileError: no JSON, no list of instances, one that is in two places, or as `FabricTree`.
    """
    start = _START.search(text)
    end = max(text.rfind("}"), text.rfind("]"))
    body = "" if start is None else text[start.start() : end + 1]
    document = parse_json(body.encode("utf-8", "replace"), source)
    faults = Faults()
    if isinstance(document.raw, dict):
        if document.raw.get("NextToken"):
            faults.add("the answer has more pages (NextToken), which are not in the file")
        if "Instances" not in document.raw:
            raise InputFileError(source, "has no list of Instances")
        document = document.member("Instances")
    children: dict[str, dict[str, None]] = {}
    hosts: dict[str, dict[str, None]] = {}
    placed: dict[str, tuple[str, ...]] = {}
    tree = FabricTree(source, faults)
    for item in document.items(MAX_HOSTS, min_items=1, what="instances"):
        name, layers = _instance(item, tree)
        if placed.setdefault(name, layers) != layers:
            item.fail(f"puts {name} on {' / '.join(layers)}, and before on {' / '.join(placed[name])}")
        for upper, lower in pairwise(layers):
            children.setdefault(upper, {})[lower] = None
        for layer in layers:
            hosts.setdefault(layer, {})
        if layers:
            hosts[layers[-1]][name] = None
        else:
            faults.add("instances of which the answer does not say where they are", name)
    for switch, below in hosts.items():
        tree.add(switch, children=children.get(switch, ()), hosts=below)
    return tree.reading()


def _instance(item: Value, tree: FabricTree) -> tuple[str, tuple[str, ...]]:
    """Its name and network nodes; its other statements go to the tree."""
    members = item.mapping(64)
    if "InstanceId" not in members:
        item.fail("lacks the key 'InstanceId'")
    name = members["InstanceId"].text(max_length=256)
    attributes = {
        attribute: members[key].text()
        for key, attribute in _KEYS.items()
        if key in members and members[key].raw is not None
    }
    tree.host(name, attributes)
    nodes = members.get("NetworkNodes")
    if nodes is None or nodes.raw is None:
        return name, ()
    return name, tuple(each.text(max_length=256) for each in nodes.items(_MAX_LAYERS, what="layers"))


READER = Reader("aws-topology", "AWS describe-instance-topology", _recognise, read)
