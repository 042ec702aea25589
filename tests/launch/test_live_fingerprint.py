import json
from dataclasses import asdict, replace

import torch

from topotune.execute.fingerprint import RankFacts, combine_facts, local_facts
from topotune.plan import Fingerprint, HardFingerprint, SoftFingerprint, compare_fingerprints

FACTS = RankFacts(
    backend="gloo",
    device_kind="cpu",
    device_count=8,
    collective_library="gloo (torch 2.13)",
    host="a",
    driver=None,
    kernel="6.8.0",
    torch="2.13.0",
)


def test_ranks_on_two_nodes_make_one_fingerprint():
    facts = [FACTS, replace(FACTS, host="b", device_count=4), FACTS]
    assert combine_facts(facts, [0, 1, 0]) == Fingerprint(
        hard=HardFingerprint(
            backend="gloo",
            device_kind="cpu",
            device_count=4,
            world_size=3,
            ranks_per_node=(2, 1),
            collective_library="gloo (torch 2.13)",
        ),
        soft=SoftFingerprint(hosts=("a", "b"), driver=None, kernel="6.8.0", torch="2.13.0"),
    )


def test_what_differs_between_ranks_all_stands_in_it():
    facts = [FACTS, replace(FACTS, driver="580.95", torch="2.12.1", collective_library="gloo (torch 2.12)")]
    fingerprint = combine_facts(facts, [0, 0])
    assert fingerprint.hard.collective_library == "gloo (torch 2.12), gloo (torch 2.13)"
    assert fingerprint.soft == SoftFingerprint(
        hosts=("a",), driver="580.95", kernel="6.8.0", torch="2.12.1, 2.13.0"
    )


def test_this_process_sees_facts_that_json_carries_and_that_match_themselves():
    facts = local_facts("gloo")
    major, minor = torch.__version__.split(".")[:2]
    assert (facts.device_kind, facts.collective_library) == ("cpu", f"gloo (torch {major}.{minor})")
    assert facts.device_count >= 1
    assert RankFacts(**json.loads(json.dumps(asdict(facts)))) == facts
    fingerprint = combine_facts([facts] * 2, [0, 0])
    verdict = compare_fingerprints(fingerprint, combine_facts([local_facts("gloo")] * 2, [0, 0]))
    assert (verdict.hard, verdict.soft) == ((), ())
