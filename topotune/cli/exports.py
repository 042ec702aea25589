"""The verb export: topologies and plans in the terms of other programs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topotune.cli.app import app
from topotune.cli.options import Force, Json, Output
from topotune.cli.output import check_output, print_json
from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.topology.formats.exporting import Exported


@app.command()
def export(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A plan, a topology, or a file that import reads.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FORMAT", help="For which program; list prints what there is."),
    ] = "list",
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Which node, where the format holds one.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--for", metavar="VERSION", help="The program's version.  [default: the newest known]"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help="Of gradients as they are reduced, where elements are counted: fp32, fp16, bf16.",
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a plan or a topology for other programs: MPI, NCCL, Horovod, DeepSpeed, ….

    Example: topotune export plan.json --to openmpi-tuned -o tuned.conf
    """
    from topotune.documents import holds
    from topotune.files import write_whole

    if to == "list":
        _list_formats(as_json)
        return
    if file is None:
        raise UsageError(f"--to {to}: of which plan or topology?", hint=f"topotune export FILE --to {to}")
    check_output(output, force, schema=None)
    if holds(file, "topotune/plan"):
        if node is not None:
            raise UsageError(
                f"--node {node}: {file} is a plan, which is for all nodes", hint="leave --node out"
            )
        exported, how_to_use = _export_plan(file, to, version, dtype, output)
    else:
        if version is not None:
            raise UsageError(f"--for {version}: {file} is a topology", hint="only plans are for versions")
        if dtype is not None:
            raise UsageError(f"--dtype {dtype}: {file} is a topology", hint="only plans have gradients")
        exported, how_to_use = _export_topology(file, to, node), None
    for warning in exported.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if output is not None:
        write_whole(output, exported.text.encode(), force=force)
    if as_json:
        head = {"schema": "topotune/export", "schema_version": 1}
        print_json(head | {"format": to, "text": exported.text, "warnings": list(exported.warnings)})
    elif output is None:
        print(exported.text, end="")
    else:
        print(f"written to {output}", file=sys.stderr)
        if how_to_use is not None:
            print(how_to_use)


def _list_formats(as_json: bool) -> None:
    from topotune.plan.exports import targets
    from topotune.topology.formats.exporting import SUMMARIES

    plans = [(target.name, f"{target.summary} ({target.versions})") for target in targets()]
    topologies = list(SUMMARIES.items())
    if as_json:
        formats = [
            {"name": name, "of": of, "summary": summary}
            for of, listed in (("plan", plans), ("topology", topologies))
            for name, summary in listed
        ]
        print_json({"schema": "topotune/formats", "schema_version": 1, "formats": formats, "warnings": []})
        return
    for of, listed in (("a plan", plans), ("a topology", topologies)):
        print(f"of {of}")
        for name, summary in listed:
            print(f"  {name:18} {summary}")


def _export_plan(
    file: Path, to: str, version: str | None, dtype: str | None, output: Path | None
) -> "tuple[Exported, str]":
    from topotune.plan import load_plan
    from topotune.plan.exports import ExportOptions, find_target
    from topotune.topology.formats.exporting import Exported

    target = find_target(to)
    if dtype is not None and not target.counts_elements:
        raise UsageError(f"--dtype {dtype}: {to} does not count elements", hint="leave --dtype out")
    options = ExportOptions(version=version, dtype=dtype, plan_path=str(file.resolve()))
    translated = target.from_plan(load_plan(file), options)
    place = "FILE" if output is None else str(output)
    return Exported(target.write(translated.document), translated.warnings), target.how_to_use(place)


def _export_topology(file: Path, to: str, node: str | None) -> "Exported":
    from topotune.topology.formats import export_topology, read_files

    exported: Exported = export_topology(read_files([str(file)]), to, node=node)
    return exported
