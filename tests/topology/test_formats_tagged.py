"""Outputs whose lines carry tags: of ranks, hosts, times, mails. They read as without."""

from pathlib import Path

import pytest

from topotune.errors import InputFileError
from topotune.topology import topology_to_document
from topotune.topology.formats import is_capture, read_files

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*/*.txt"))

TABLE = (
    "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\n"
    "GPU0\t X \tNV4\tPIX\t0-9\n"
    "GPU1\tNV4\t X \tNODE\t0-9\n"
    "mlx5_0\tPIX\tNODE\t X \n"
)
LOG = """==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA L4
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 8x
"""


def shown(path):
    topology = read_files([str(path)])
    gpus = [(gpu.node, gpu.index, gpu.model) for gpu in topology.vertices if gpu.kind == "gpu"]
    return gpus, sorted((pair.path or "", pair.nvlinks or 0) for pair in topology.pairs)


def tagged(text, *tags):
    return "".join(f"{tag}{line}\n" for tag in tags for line in text.splitlines())


@pytest.mark.parametrize("text", [TABLE, LOG], ids=["table", "outline"])
@pytest.mark.parametrize(
    "tag",
    [
        "0: ",
        "[1,0]<stdout>:",
        "[prterun-a-1@1,3]<stdout>: ",
        "[pod/a/b] ",
        "2026-01-02T03:04:05.6Z ",
        "> ",
        "> > ",
    ],
)
def test_tags_of_lines_are_none_of_the_tools_words(tmp_path, text, tag):
    (tmp_path / "plain.txt").write_text(text)
    (tmp_path / "tagged.txt").write_text(tagged(text, tag))
    assert is_capture(str(tmp_path / "tagged.txt"))
    assert shown(tmp_path / "tagged.txt") == shown(tmp_path / "plain.txt")


def test_an_indented_block_reads_as_one_that_is_not(tmp_path):
    (tmp_path / "plain.txt").write_text(LOG)
    (tmp_path / "indented.txt").write_text(tagged(LOG, "    "))
    assert shown(tmp_path / "indented.txt") == shown(tmp_path / "plain.txt")


def test_hosts_in_tags_name_the_nodes(tmp_path):
    (tmp_path / "all.txt").write_text(tagged(TABLE, "n1: ", "n2: "))
    gpus, pairs = shown(tmp_path / "all.txt")
    assert [node for node, _, _ in gpus] == ["n1", "n1", "n2", "n2"]
    assert len(pairs) == 6
    with pytest.raises(InputFileError, match="is said to be of n3, and its lines are tagged with n1"):
        read_files([f"n3={tmp_path / 'all.txt'}"])


def test_ranks_that_wrote_the_same_are_taken_once_and_others_refused(tmp_path):
    (tmp_path / "same.txt").write_text(tagged(TABLE, "0: ", "1: "))
    assert len(shown(tmp_path / "same.txt")[0]) == 2
    (tmp_path / "other.txt").write_text(tagged(TABLE, "0: ") + tagged(TABLE.replace("NV4", "NV2"), "1: "))
    with pytest.raises(InputFileError, match="several processes, which wrote different things"):
        read_files([str(tmp_path / "other.txt")])


def test_lines_of_writers_that_say_nothing_known_are_left_out(tmp_path):
    (tmp_path / "logs.txt").write_text(tagged(TABLE, "0: ") + tagged("starting\ndone\n", "1: "))
    assert len(shown(tmp_path / "logs.txt")[0]) == 2


def read(path):
    document = topology_to_document(read_files([str(path)]))
    return {key: document.get(key) for key in ("vertices", "links", "pairs", "ranks")}


@pytest.mark.parametrize(
    ("tag", "end"),
    [("[1,0]<stdout>:", "\n"), ("node0: ", "\n"), ("> ", "  \r\n")],
    ids=["ranks", "hosts", "a padded mail"],
)
def test_whatever_the_format_its_lines_read_the_same_with_tags(tmp_path, tag, end):
    copy = tmp_path / "tagged.txt"
    num_read = 0
    for path in FIXTURES:
        try:
            text = path.read_bytes().decode()
            plain = read(path)
        except (InputFileError, UnicodeDecodeError):
            continue
        copy.write_bytes("".join(f"{tag}{line}{end}" for line in text.split("\n")).encode())
        assert read(copy) == plain, path
        num_read += 1
    assert num_read > 40
