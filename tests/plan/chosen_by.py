"""What each program takes from an exported text, read by its own rules and by none of our readers."""

import json
import re


def openmpi_text(text, message_bytes):
    """The last row whose first size is not above the message's; None for algorithm 0."""
    numbers = [int(word) for line in text.splitlines() for word in line.split("#")[0].split()]
    assert numbers[:3] == [1, 2, 1]
    rows = [numbers[5 + 4 * index : 9 + 4 * index] for index in range(numbers[4])]
    assert len(numbers) == 5 + 4 * len(rows)
    assert rows[0][0] == 0
    names = ["linear", "reduce_bcast", "recursive_doubling", "ring", "segmented", "rabenseifner", "gathering"]
    algorithm = [row[1] for row in rows if row[0] <= message_bytes][-1]
    return None if algorithm == 0 else names[algorithm - 1]


def openmpi_json(text, message_bytes):
    """The first rule of the last table with the message between its ends, both included."""
    table = json.loads(text)["collectives"]["allreduce"][-1]
    for rule in table["rules"]:
        last = float("inf") if rule["msg_size_max"] == "inf" else rule["msg_size_max"]
        if rule["msg_size_min"] <= message_bytes <= last:
            return None if rule["alg"] == "ignore" else rule["alg"]
    raise AssertionError("no rule")


def openmpi_han(text, message_bytes, num_ranks):
    """The component of the last table and row that are not above the communicator and the message."""
    words = [word for line in text.splitlines() for word in line.split("#")[0].split()]
    assert words[:4] == ["1", "2", "1", "2"]
    at, chosen = 5, None
    for _ in range(int(words[4])):
        ranks, num_rows = int(words[at]), int(words[at + 1])
        rows = [(int(words[at + 2 + 2 * i]), words[at + 3 + 2 * i]) for i in range(num_rows)]
        at += 2 + 2 * num_rows
        if ranks <= num_ranks:
            chosen = [component for first, component in rows if first <= message_bytes][-1]
    assert at == len(words)
    return chosen


def intel_mpi(text, message_bytes, num_ranks):
    """The first clause with the message between its ends, both included."""
    value = re.search("='(.*)'", text)
    for clause in value[1].split(";") if value else []:
        number, first, last, ranks = map(int, re.fullmatch(r"(\d+):(\d+)-(\d+)@(\d+)", clause).groups())
        if first <= message_bytes <= last and ranks == num_ranks:
            return number
    return None


def ucc(text, message_bytes):
    """The token with the message from its start on and before its end."""
    value = re.search("^UCC_TL_UCP_TUNE=(.*)$", text, re.MULTILINE)
    for token in value[1].split("#") if value else []:
        first, end, name = re.fullmatch(r"allreduce:(\d+)-(\d+|inf):host:@(\w+)", token).groups()
        if int(first) <= message_bytes < float(end):
            return name
    return None


def mpich(text, message_bytes, num_ranks, *, commutative=True, built_in=True, num_elements=None):
    """The leaf that the first tests which hold lead to; there must be one."""
    facts = {"is_commutative": commutative, "is_op_built_in": built_in, "comm_hierarchy": "parent"}
    tree = json.loads(text)["collective=allreduce"]["comm_type=intra"]
    largest_power = 2 ** (num_ranks.bit_length() - 1)
    while True:
        for test, below in tree.items():
            if "<=" in test:
                name, limit = test.split("<=")
                assert int(limit) < 2**31
                holds = {"comm_size": num_ranks, "avg_msg_size": message_bytes}[name] <= int(limit)
            elif test == "count<pow2":
                holds = (message_bytes if num_elements is None else num_elements) < largest_power
            else:
                name, value = test.split("=")
                if name in ("algorithm", "composition"):
                    return value.rpartition("_intra_")[2]
                said = {"yes": True, "no": False}.get(value, value)
                holds = value == "any" or facts[name] == said
            if holds:
                tree = below
                break
        else:
            raise AssertionError("no test holds")
