"""Opening the record of a tuning run: a new journal, or one to go on with; one verdict for all ranks."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from topotune.errors import TopotuneError, error_from_json, error_to_json
from topotune.links.messages import Messages
from topotune.plan import Plan, plan_from_document
from topotune.tune.journal import ENDED, Journal, JournalContents
from topotune.tune.options import TuneOptions
from topotune.tune.resume import Past, check_same_run, check_version, read_past


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a run writes into and goes on from. Journal, past and plan are there on rank 0 alone.

    Attributes:
        journal: None where none is kept.
        past: what earlier launches of the run have found.
        ended: whether the run has come to its end already; on all ranks.
        plan: which it then had made.
        has_links: whether the links were measured already; on all ranks.
    """

    journal: Journal | None = None
    past: Past = field(default_factory=Past)
    ended: bool = False
    plan: Plan | None = None
    has_links: bool = False

    @classmethod
    def open(
        cls, options: TuneOptions, header: Mapping[str, Any], messages: Messages, stack: ExitStack
    ) -> Self:
        """Open it on rank 0, and tell the others. Collective.

        Args:
            options: of the run.
            header: what the journal says of the run.
            messages: between all ranks.
            stack: closes the journal.

        Raises:
            TopotuneError: on all ranks, where it cannot be opened or is of another run.
        """
        record = cls()
        said: dict[str, Any] | None = None
        if messages.rank == 0:
            try:
                record = cls._opened(options, header, stack)
                said = {"error": None, "ended": record.ended, "has_links": record.has_links}
            except TopotuneError as error:
                said = {"error": error_to_json(error)}
        verdict = messages.gather(said)[0]
        if verdict["error"] is not None:
            raise error_from_json(verdict["error"])
        return record if messages.rank == 0 else cls(ended=verdict["ended"], has_links=verdict["has_links"])

    @classmethod
    def _opened(cls, options: TuneOptions, header: Mapping[str, Any], stack: ExitStack) -> Self:
        if options.journal_path is None:
            return cls()
        path = Path(options.journal_path)
        if not options.resume:
            return cls(journal=stack.enter_context(Journal(path, header)))
        journal, contents = Journal.resume(path)
        stack.enter_context(journal)
        check_same_run(contents.header, header, path)
        plan = _plan_of(contents, path)
        if plan is not None:
            return cls(journal=journal, ended=True, plan=plan)
        check_version(contents, path)
        past = read_past(contents, path)
        journal.note("resumed", {"budget_s": options.budget_s, "num_finished": past.num_finished})
        return cls(journal=journal, past=past, has_links=past.measurement is not None)


def _plan_of(contents: JournalContents, path: Path) -> Plan | None:
    """The plan that a run which came to its end has made."""
    for note in contents.notes:
        if note["kind"] == ENDED:
            document = note.get("plan")
            return plan_from_document(document if isinstance(document, dict) else {}, str(path))
    return None
