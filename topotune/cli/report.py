"""The verb report: result files as one page, as Markdown, or as CSV."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from topotune.cli import completion
from topotune.cli.app import app
from topotune.cli.options import Force, Json
from topotune.cli.output import check_output, print_json
from topotune.errors import OutputFileError, UsageError

if TYPE_CHECKING:
    from topotune.report.content import Report
    from topotune.results import ResultFile

_FORMATS: Final = ("html", "md", "csv")
_MAX_FILES: Final = 100


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Topologies, measurements, plans, journals, schedules, comparisons, checks, optima, "
            "predictions.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the report to FILE; for csv, a folder."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="html (one page, pictures), md (text, tables) or csv (tables). [default: as FILE ends, "
            "else html]",
            autocompletion=completion.REPORTS,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a report with pictures of any result files. One HTML file that needs no network.

    Example: topotune report plan.json plan.journal.jsonl links.json -o report.html
    """
    from topotune.report.compose import compose
    from topotune.results import read_result

    if form is None:
        form = _form_of(output)
    elif form not in _FORMATS:
        raise UsageError(f"--format {form}: no such format", hint=f"there are: {', '.join(_FORMATS)}")
    if len(files) > _MAX_FILES:
        raise UsageError(f"{len(files)} files are more than the {_MAX_FILES} that a report takes")
    if output is None and (form != "md" or as_json):
        raise UsageError(f"a report as {form} needs a place", hint=_place(form, files[0]))
    if form != "csv":
        check_output(output, force, schema=None)
    elif output is not None and output.exists() and not output.is_dir():
        raise OutputFileError(f"{output}: is a file; csv needs a folder", hint=_place(form, files[0]))
    found = [read_result(file) for file in files]
    result = compose(found)
    written = _write(result, form, output, force)
    if as_json:
        print_json(_document(found, result, form, written))
    elif written:
        print(f"written to {output}" + (f": {len(written)} tables" if form == "csv" else ""), file=sys.stderr)


def _form_of(output: Path | None) -> str:
    """What a report is by its place's ending: a page where it has none."""
    ending = "" if output is None else output.suffix.lower()
    forms = {"": "html", ".html": "html", ".htm": "html", ".md": "md"}
    if ending not in forms:
        raise UsageError(
            f"{output}: a report is no {ending} file",
            hint="-o report.html or report.md; --format csv makes a folder of tables, -o report-tables",
        )
    return forms[ending]


def _place(form: str, file: Path) -> str:
    place = "report-tables" if form == "csv" else f"report.{form}"
    return f"topotune report {file} --format {form} -o {place}"


def _write(report: "Report", form: str, output: Path | None, force: bool) -> list[Path]:
    """Write the report, or print it where no place is given; what was written."""
    from topotune.files import check_writable, write_whole

    if form == "csv":
        from topotune.report.spreadsheet import csv_text

        assert output is not None
        try:
            output.mkdir(exist_ok=True)
        except OSError as problem:
            raise OutputFileError(f"{output}: cannot be made: {problem.strerror}") from problem
        places = [(output / f"{table.name}.csv", table) for table in report.tables]
        for place, _ in places:
            check_writable(place, force=force)
        for place, table in places:
            write_whole(place, csv_text(table.frame).encode(), force=force)
        return [place for place, _ in places]
    if form == "md":
        from topotune.report.markdown import markdown_text

        text = markdown_text(report)
    else:
        from topotune.report.html.page import render_page

        text = render_page(report)
    if output is None:
        print(text, end="")
        return []
    write_whole(output, text.encode(), force=force)
    return [output]


def _document(files: "list[ResultFile]", report: "Report", form: str, written: list[Path]) -> dict[str, Any]:
    return {
        "schema": "topotune/report",
        "schema_version": 1,
        "format": form,
        "files": [{"path": file.path, "kind": file.kind} for file in files],
        "sections": [
            {
                "title": section.title,
                "source": section.source or None,
                "pictures": [picture.title for picture in section.pictures],
                "tables": [{"name": table.name, "num_rows": len(table.frame)} for table in section.tables],
            }
            for section in report.sections
        ],
        "written": [{"path": str(place), "num_bytes": place.stat().st_size} for place in written],
        "warnings": [],
    }
