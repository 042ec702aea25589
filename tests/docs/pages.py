"""The pages of the documentation, their links, and the commands that they tell the reader to type."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]

FOREIGN = {
    "az": "needs Azure",
    "horovodrun": "needs Horovod",
    "jq": "another program's part",
    "kubectl": "needs a Kubernetes cluster",
    "mpirun": "needs several nodes of Open MPI",
    "srun": "needs a Slurm cluster",
    "yq": "another program's part",
    "make": "installs; it is what continuous integration itself runs",
}
"""Programs that are not run here, with the reason; what they start of topotune is parsed."""

SHELL = {".", "cat", "chmod", "cp", "echo", "export", "mkdir", "python", "set", "source", "torchrun"}
"""Programs and words of the shell that are."""

NOT_RUN = {
    r"topotune lab \S": "takes root and minutes: the lab's own tests run it",
    r"python benchmarks/": "takes minutes and a quiet machine",
    r"--base /usr/lib": "needs MPICH's library",
    r"--backend nccl|nccl-plan\.json": "needs GPUs",
    r"--verify": "needs Open MPI or MPICH: the exports' own tests run it",
    r"xla\.sh": "needs JAX",
    r"optimum machine\.json --nodes 4 --set": "the machine is the reader's",
    r"/opt/ml/|outputs/": "for a platform's own folders",
    r"\.venv/": "the tests have an environment of their own",
}
"""Commands that are only parsed, by what they hold, with the reason."""

RANK_VERBS = {"compare", "measure", "record", "run", "tune"}
"""They start other processes."""

SLOW_VERBS = {*RANK_VERBS, "optimum", "report", "simulate"}
"""Those, and what takes seconds."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
_INLINE = re.compile(r"`((?:\w+=\S+ )*topotune [^`]+)`")
_COMMENT = re.compile(r"\s+# .*$")
_PLACEHOLDER = re.compile(r"…|\b(CMD|DIR|FILE|FORMAT|NAME|PATH|PROFILE|TARGET|VERB|VERSION)\b")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Command:
    """A line that a page tells its reader to type.

    Attributes:
        page: which.
        text: the line, without comment.
    """

    page: Path
    text: str

    @property
    def program(self) -> str:
        """What it starts."""
        words = [word for word in self.text.split() if not re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", word)]
        return words[0] if words else "export"

    @property
    def why_not_run(self) -> str | None:
        """Why it is only parsed; None if it is run."""
        if _PLACEHOLDER.search(self.text):
            return "a pattern: the reader fills it in"
        for pattern, reason in NOT_RUN.items():
            if re.search(pattern, self.text):
                return reason
        return FOREIGN.get(self.program)

    @property
    def is_slow(self) -> bool:
        """Whether it starts processes, takes seconds, or needs a shell."""
        return self.needs_processes or bool(self._verbs & SLOW_VERBS)

    @property
    def needs_processes(self) -> bool:
        """Whether it is more than one topotune of one process: it starts ranks, or needs a shell."""
        is_of_files = bool(re.search(r"\.(json|xml|txt)\b", self.text))
        measures = "check" in self._verbs and "--no-measure" not in self.text and not is_of_files
        return (
            self.program != "topotune"
            or bool(self._verbs & RANK_VERBS)
            or measures
            or bool(re.search(r"[|;<>]|&&|\$\(|\s--\s", self.text))
        )

    @property
    def _verbs(self) -> set[str]:
        return {words[0] for words in self.topotunes if words}

    @property
    def topotunes(self) -> list[list[str]]:
        """The arguments of each topotune in it, up to and with the ``--`` before a job's own command line."""
        found: list[list[str]] = []
        tokens = shlex.split(self.text, comments=True)
        tokens = [
            part
            for token in tokens
            for part in ([token.rstrip(";"), ";"] if token.endswith(";") else [token])
        ]
        current: list[str] | None = None
        for index, token in enumerate(tokens):
            if token == "topotune" and (index == 0 or tokens[index - 1] != "import"):
                current = []
                found.append(current)
            elif current is not None and token == "--":
                current.append(token)
                current = None
            elif current is not None and re.fullmatch(r"&&|\|+|;|[12]?>+.*|<", token):
                current = None
            elif current is not None:
                current.append(token)
        return found


def commands(page: Path) -> list[Command]:
    """All of a page, in order."""
    found = []
    for block in code_blocks(page.read_text()):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        if any(line.startswith("$ ") for line in lines):  # a transcript: the rest is output
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            text = _COMMENT.sub("", line).strip()
            if line[:1] not in (" ", "#") and is_command(text):
                found.append(Command(page, text))
    return found


def is_command(text: str) -> bool:
    """Whether a line of code is one of a shell."""
    words = [word for word in text.split() if not re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", word)]
    if not words or "(" in text.split("$(")[0] or text.startswith(("import ", "from ")):
        return False
    return words[0] in SHELL | set(FOREIGN) | {"topotune"} and not words[0].endswith(":")


def code_blocks(text: str) -> list[str]:
    """Fenced and indented ones of a page that may hold commands, in order."""
    found = [
        (match.start(), match[2])
        for match in _FENCE.finditer(text)
        if match[1] in ("", "bash", "console", "sh")
    ]
    without = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in _INDENTED.finditer(without):
        block = re.sub(r"^    ", "", match[1], flags=re.MULTILINE)
        found.append((_place(text, without, match.start()), block))
    return [block for _, block in sorted(found)]


def _place(text: str, without: str, offset: int) -> int:
    """Where in a page the line stands that begins at an offset of the page without its fences."""
    return len("".join(text.splitlines(keepends=True)[: without.count("\n", 0, offset)]))


def inline_commands(page: Path) -> list[str]:
    """What stands of topotune's command line in running text and tables."""
    text = _FENCE.sub("", page.read_text())
    return [match[1].replace("\\|", "|") for match in _INLINE.finditer(text)]


def links(page: Path) -> list[str]:
    """Targets of all links of a page."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))
