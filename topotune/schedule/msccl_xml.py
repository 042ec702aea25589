"""MSCCL programs as XML, written and read (MSCCL_XML_FILES, RCCL's msccl-algorithms folder)."""

from typing import Final, NoReturn

from topotune.errors import InputFileError
from topotune.schedule.msccl import (
    KINDS,
    MAX_BLOCKS,
    MAX_BYTES,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_COUNT,
    MAX_RANKS,
    MAX_STEPS,
    Block,
    Program,
    Step,
)
from topotune.topology.formats.xml_tree import Element, parse_xml

NAME: Final = "msccl-xml"
SUMMARY: Final = "MSCCL's program file, in place (msccl of 2023, RCCL)"
WARNINGS: Final = (
    "the program is for calls in place alone, and sends and receives are not fused: time it before use",
)

_MAX_ELEMENTS: Final = 2**21
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def write_msccl(program: Program) -> str:
    """The text of a program."""
    lines = [
        f'<algo name="{program.name}" proto="Simple" nchannels="{program.num_channels}" '
        f'nchunksperloop="{program.num_chunks}" ngpus="{len(program.gpus)}" coll="allreduce" '
        f'inplace="1" outofplace="0" minBytes="0" maxBytes="{MAX_BYTES}">'
    ]
    for rank, blocks in enumerate(program.gpus):
        lines.append(f'  <gpu id="{rank}" i_chunks="{program.num_chunks}" o_chunks="0" s_chunks="0">')
        for number, block in enumerate(blocks):
            lines.append(
                f'    <tb id="{number}" send="{block.sends_to}" recv="{block.receives_from}" '
                f'chan="{block.channel}">'
            )
            lines += [f"      {_step(index, step)}" for index, step in enumerate(block.steps)]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    lines.append("</algo>")
    return "\n".join(lines) + "\n"


def _step(index: int, step: Step) -> str:
    block, of_block = step.waits_for or (-1, -1)
    return (
        f'<step s="{index}" type="{step.kind}" srcbuf="i" srcoff="{step.chunk}" dstbuf="i" '
        f'dstoff="{step.chunk}" cnt="{step.count}" depid="{block}" deps="{of_block}" '
        f'hasdep="{int(step.is_waited_for)}"/>'
    )


def read_msccl(text: str, source: str) -> Program:
    """The program of a text.

    Raises:
        InputFileError: no XML, or not the kind of program that `write_msccl` writes.
    """
    tree = parse_xml(text, source, max_elements=_MAX_ELEMENTS)
    if tree.cut_at_line is not None:
        raise InputFileError(source, "ends before the program does", place=f"line {tree.cut_at_line}")
    reader = _Reader(source)
    algo = tree.root
    reader.fixed(algo, "algo", proto="Simple", coll="allreduce", inplace="1", outofplace="0", minBytes="0")
    reader.number(algo, "maxBytes", 1, MAX_BYTES)
    num_chunks = reader.number(algo, "nchunksperloop", 1, MAX_CHUNKS)
    num_gpus = reader.number(algo, "ngpus", 1, MAX_RANKS)
    num_channels = reader.number(algo, "nchannels", 1, MAX_CHANNELS)
    name = reader.text(algo, "name")
    if not name or not set(name) <= _NAME_CHARACTERS:
        reader.fail(algo, f"name is {name[:60]!r}, not of lower-case letters, digits and _")
    if len(algo.children) != num_gpus:
        reader.fail(algo, f"holds {len(algo.children)} gpus, and ngpus is {num_gpus}")
    gpus = []
    for rank, gpu in enumerate(algo.children):
        reader.fixed(gpu, "gpu", id=str(rank), i_chunks=str(num_chunks), o_chunks="0", s_chunks="0")
        if len(gpu.children) > MAX_BLOCKS:
            reader.fail(gpu, f"holds {len(gpu.children)} thread blocks, more than {MAX_BLOCKS}")
        blocks = tuple(
            reader.block(block, number, num_gpus, num_channels, num_chunks)
            for number, block in enumerate(gpu.children)
        )
        for block, element in zip(blocks, gpu.children, strict=True):
            reader.check_waits(element, block, blocks)
        gpus.append(blocks)
    return Program(name=name, num_chunks=num_chunks, num_channels=num_channels, gpus=tuple(gpus))


class _Reader:
    """Attributes of elements, with refusals by line."""

    def __init__(self, source: str) -> None:
        self._source = source

    def fail(self, element: Element, problem: str) -> NoReturn:
        raise InputFileError(self._source, f"{element.name} {problem}", place=f"line {element.line}")

    def text(self, element: Element, name: str) -> str:
        if name not in element.attributes:
            self.fail(element, f"lacks {name}")
        return element.attributes[name]

    def number(self, element: Element, name: str, least: int, most: int) -> int:
        text = self.text(element, name)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15 and least <= int(text) <= most):
            self.fail(element, f"has {name}={text[:40]!r}, not a whole number from {least} to {most}")
        return int(text)

    def fixed(self, element: Element, element_name: str, **attributes: str) -> None:
        if element.name != element_name:
            self.fail(element, f"stands where a {element_name} should")
        for name, value in attributes.items():
            if self.text(element, name) != value:
                self.fail(element, f"has {name}={self.text(element, name)[:40]!r}, not {value!r}")

    def block(
        self, element: Element, number: int, num_gpus: int, num_channels: int, num_chunks: int
    ) -> Block:
        self.fixed(element, "tb", id=str(number))
        sends_to = self.number(element, "send", -1, num_gpus - 1)
        receives_from = self.number(element, "recv", -1, num_gpus - 1)
        if (sends_to < 0) == (receives_from < 0):
            self.fail(element, "must either send or receive")
        if not 0 < len(element.children) <= MAX_STEPS:
            self.fail(element, f"has {len(element.children)} steps, not 1 to {MAX_STEPS}")
        kinds = ("s", "nop") if sends_to >= 0 else ("r", "rrc", "nop")
        steps = [self._step(step, index, kinds, num_chunks) for index, step in enumerate(element.children)]
        return Block(
            channel=self.number(element, "chan", 0, num_channels - 1),
            sends_to=sends_to,
            receives_from=receives_from,
            steps=tuple(steps),
        )

    def _step(self, element: Element, index: int, kinds: tuple[str, ...], num_chunks: int) -> Step:
        self.fixed(element, "step", s=str(index), srcbuf="i", dstbuf="i")
        kind = self.text(element, "type")
        if kind not in kinds:
            self.fail(element, f"has type={kind[:40]!r}, not one of {', '.join(kinds)}")
        chunk = self.number(element, "srcoff", 0, num_chunks - 1)
        self.fixed(element, "step", dstoff=str(chunk))
        least, most = (0, 0) if kind == "nop" else (1, min(MAX_COUNT, num_chunks - chunk))
        block = self.number(element, "depid", -1, MAX_BLOCKS - 1)
        step = self.number(element, "deps", -1, MAX_STEPS - 1)
        if (block < 0) != (step < 0):
            self.fail(element, f"waits for step {step} of thread block {block}")
        return Step(
            kind=next(known for known in KINDS if known == kind),
            chunk=chunk,
            count=self.number(element, "cnt", least, most),
            waits_for=None if block < 0 else (block, step),
            is_waited_for=bool(self.number(element, "hasdep", 0, 1)),
        )

    def check_waits(self, element: Element, block: Block, blocks: tuple[Block, ...]) -> None:
        for step, child in zip(block.steps, element.children, strict=True):
            if step.waits_for is None:
                continue
            number, index = step.waits_for
            if number >= len(blocks) or index >= len(blocks[number].steps):
                self.fail(child, f"waits for step {index} of thread block {number}, which is not there")
            if not blocks[number].steps[index].is_waited_for:
                self.fail(child, f"waits for step {index} of thread block {number}, which has hasdep 0")


def how_to_use(path: str) -> str:
    """How a job takes the file."""
    return (
        f"export MSCCL_XML_FILES=$(realpath {path}) NCCL_ALGO=MSCCL,RING,TREE  # Microsoft's msccl\n"
        f"export RCCL_MSCCL_ENABLE=1 MSCCL_ALGO_DIR=$(dirname $(realpath {path}))  # RCCL\n"
        "# NVIDIA's NCCL ignores both"
    )
