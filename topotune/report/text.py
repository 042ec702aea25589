"""Plans, measurements, comparisons and predictions as aligned text."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

from topotune.links import Structure, infer_structure, link_classes
from topotune.links.measurement import Measurement
from topotune.links.model import LinkModel
from topotune.links.network import fault_in_words, nodes_in_words
from topotune.plan.describe import SLOWER, params_in_words, worth_from_in_words
from topotune.plan.model import DEFAULT_ALGORITHM, Group, GroupShape, LinkClass, Plan, Row
from topotune.report.columns import align
from topotune.units import format_bit_rate, format_bytes, format_rate, format_seconds

_SHOWN_RANKS = 32
_SAID = ("the search ended ", "samples: ")
"""How the clauses of a certificate begin that say what is left to gain, and how samples looked."""
"""A row whose ratio is below it seems slower (`topotune.tune.compare`)."""


def describe_algorithm(algorithm: str, params: Mapping[str, Any]) -> str:
    """``ring, channels 2``: an algorithm with its parameters, short."""
    return ", ".join((algorithm, *(f"{name} {words}" for name, words in params_in_words(params).items())))


def ranks_in_order(order: Sequence[int]) -> str:
    """``0 4 1 5``; a long one is cut."""
    shown = " ".join(map(str, order[:_SHOWN_RANKS]))
    return f"{shown} … ({len(order)} in all)" if len(order) > _SHOWN_RANKS else shown


def describe_range(row: Row) -> str:
    """``64 KiB … 1 MiB``; the end is exclusive."""
    if row.max_bytes is None:
        return f"{format_bytes(row.min_bytes)} and more"
    return f"{format_bytes(row.min_bytes)} … {format_bytes(row.max_bytes)}"


def describe_shape(shape: GroupShape) -> str:
    """``2 ranks on 2 nodes, stride 4``."""
    nodes = "1 node" if shape.num_nodes == 1 else f"{shape.num_nodes} nodes"
    stride = {0: ", at no fixed stride", 1: ""}.get(shape.stride, f", stride {shape.stride}")
    return f"{shape.num_ranks} ranks on {nodes}{stride}"


def describe_group(group: Group) -> str:
    """Its tables: one line a row, evidence beside it, and the bound."""
    parts = []
    for collective in ("allreduce", "reduce_scatter", "allgather"):
        rows: tuple[Row, ...] | None = getattr(group, collective)
        if rows is None:
            continue
        parts.append(f"{collective}, {describe_shape(group.shape)}")
        parts.append(
            align(
                ["message size", "algorithm", "default", "plan", "ratio", "95 % interval", "of optimum"],
                [_row_cells(row) for row in rows],
                left=(0, 1),
            )
        )
        parts.extend(
            f"  {describe_range(row)}: not confirmed there, taken over from "
            f"{format_bytes(row.evidence.measured_bytes)}"
            for row in rows
            if row.algorithm != DEFAULT_ALGORITHM and row.evidence is not None and row.evidence.extrapolated
        )
        bounds = {row.bottleneck.text for row in rows if row.bottleneck}
        parts.extend(f"  bottleneck: {text}" for text in sorted(bounds))
        reasons = {row.no_bound_reason for row in rows if row.no_bound_reason}
        parts.extend(f"  no share of the optimum: {reason}" for reason in sorted(reasons))
    return "\n".join(parts)


def _row_cells(row: Row) -> list[str]:
    evidence = row.evidence
    share = "–" if row.percent_of_optimum is None else f"{row.percent_of_optimum:.0f} %"
    if evidence is None:
        return [describe_range(row), describe_algorithm(row.algorithm, row.params), "–", "–", "–", "–", share]
    if row.algorithm == DEFAULT_ALGORITHM:
        return [
            describe_range(row),
            row.algorithm,
            format_seconds(evidence.default_median_s),
            "–",
            "–",
            "–",
            share,
        ]
    low, high = evidence.ratio_ci
    return [
        describe_range(row),
        describe_algorithm(row.algorithm, row.params),
        format_seconds(evidence.default_median_s),
        format_seconds(evidence.median_s),
        f"{evidence.ratio:.2f}",
        f"{low:.2f} … {high:.2f}",
        share,
    ]


def describe_plan(plan: Plan) -> str:
    """The whole plan for people."""
    hard, context, certificate = plan.fingerprint.hard, plan.context, plan.certificate
    parts = [
        f"plan for {hard.world_size} ranks ({'+'.join(map(str, hard.ranks_per_node))} per node), "
        f"{hard.collective_library}; made {context.created} in {context.elapsed_s:.0f} s"
    ]
    if context.network is not None:
        parts.append(f"network: {context.network}")
    if context.interface is not None:
        parts.append(
            f"gloo by itself takes another: run the job with GLOO_SOCKET_IFNAME={context.interface}, which\n"
            "  topotune run sets"
        )
    if plan.rank_order is not None:
        parts.append(f"ranks by position: {ranks_in_order(plan.rank_order)}; groups are of positions")
    if plan.links:
        parts.append(describe_links(plan.links))
    parts.extend(describe_group(group) for group in plan.groups)
    if certificate.num_comparisons:
        control = "there was no time to try the default against itself"
        if certificate.num_null_trials:
            rate = 100 * (certificate.false_win_rate or 0.0)
            high = 100 * (certificate.false_win_rate_ci or (0.0, 1.0))[1]
            control = (
                f"the default against itself won {rate:.0f} % of {certificate.num_null_trials} trials "
                f"(at most {high:.0f} % with 95 % confidence)"
            )
        parts.append(
            f"certificate: {certificate.num_comparisons} comparisons on fresh samples, "
            f"{certificate.correction} corrected, margin {100 * certificate.min_gain:g} %;\n  {control}"
        )
    parts.extend(_folded(part) for part in certificate.method.split("; ") if part.startswith(_SAID))
    if plan.ddp is not None:
        from topotune.report.step import describe_buckets

        parts.append(describe_buckets(plan.ddp))
    parts.extend(f"warning: {warning}" for warning in plan.warnings)
    return "\n".join(parts)


def describe_links(classes: Sequence[LinkClass]) -> str:
    """The fitted classes, one line each; without the columns that say nothing of any."""
    header = ("links", "pairs", "latency", "95 % interval", "bandwidth", "95 % interval", "fit error")
    rows = [
        [
            link.name,
            str(link.num_pairs),
            format_seconds(link.latency_s),
            _interval(link.latency_ci_s, format_seconds),
            format_rate(link.bandwidth_bytes_per_s),
            _interval(link.bandwidth_ci_bytes_per_s, format_rate),
            "–" if link.max_relative_error is None else f"{100 * link.max_relative_error:.0f} %",
        ]
        for link in classes
    ]
    said = [column for column in range(len(header)) if any(row[column] != "–" for row in rows)]
    return align([header[column] for column in said], [[row[column] for column in said] for row in rows])


def describe_measurement(measurement: Measurement, model: LinkModel | None) -> str:
    """Fitted classes, what concurrent transfers share, other tools' figures, and what stands out.

    Args:
        measurement: what was measured.
        model: fitted to it; None where it holds no times of links.
    """
    from topotune.report.devices import describe_copies
    from topotune.report.figures import describe_figures

    figures = describe_figures(measurement)
    if model is None:
        return "\n".join([*figures, *(f"warning: {warning}" for warning in measurement.warnings)])
    num_nodes = len(set(model.node_of_rank))
    parts = [
        *figures,
        f"{model.num_ranks} ranks on {num_nodes} node{'s' if num_nodes > 1 else ''}",
        describe_links(link_classes(model)),
    ]
    parts.extend(
        f"  shared: {shared.name}, {format_rate(shared.capacity_bytes_per_s)}" for shared in model.shared
    )
    if num_nodes > 1 and (measurement.flow_tests or measurement.round_trips):
        parts.append(describe_network(infer_structure(measurement), measurement.node_names))
    parts.extend(describe_copies(measurement.device_copies))
    parts.extend(f"warning: {warning}" for warning in measurement.warnings)
    return "\n".join(parts)


def describe_network(structure: Structure, node_names: Sequence[str]) -> str:
    """Racks with their uplinks, or why there are none, and what is slow."""
    parts = ["network"]
    if structure.groups:
        rows = []
        for group in structure.groups:
            for direction, uplink in (("sending", group.sending), ("receiving", group.receiving)):
                name = f"{group.name}, {direction}"
                nodes = nodes_in_words(group.nodes, node_names).partition(" ")[2]
                if uplink is None:
                    rows.append([name, nodes, "carries all", "–", "–"])
                else:
                    low, high = (format_bit_rate(rate) for rate in uplink.capacity_ci_bytes_per_s)
                    capacity = format_bit_rate(uplink.capacity_bytes_per_s)
                    rows.append([name, nodes, capacity, f"{low} … {high}", f"{uplink.oversubscription:.1f}"])
        header = ["uplink of", "nodes", "capacity", "95 % interval", "oversubscribed"]
        parts.append(align(header, rows, left=(0, 1)))
    else:
        parts.append(f"  {structure.no_groups}")
    parts.extend(
        f"  slow: {fault_in_words(fault, node_names)}, {format_bit_rate(fault.rate_bytes_per_s)} where its "
        f"class has {format_bit_rate(fault.class_bytes_per_s)} ({fault.num_slow} of {fault.num_runs} runs)"
        for fault in structure.faults
    )
    if structure.unplaced:
        parts.append(f"  not placed: {nodes_in_words(structure.unplaced, node_names)}")
    return "\n".join(parts)


def describe_check(document: dict[str, Any]) -> str:
    """Each finding with its figures and what to look at, the gravest first."""
    num_ranks, num_nodes = document["num_ranks"], len(document["node_names"])
    nodes = f"{num_nodes} node{'s' if num_nodes != 1 else ''}"
    if num_ranks is None:
        parts = [f"{nodes}, as described: nothing was measured"]
    else:
        who = f"{num_ranks} rank{'s' if num_ranks > 1 else ''}" if num_ranks else "ranks of unknown number"
        parts = [f"{who} on {nodes}" if num_nodes else who]
    if document["profile"] is not None:
        parts.append(f"profile: {document['profile']}")
    if not document["findings"]:
        parts.append("nothing was found")
    for finding in document["findings"]:
        parts.append(f"{finding['severity']}: {finding['code']}, {finding['where']}")
        parts.append(f"  {finding['evidence']}")
        if finding["cost_percent"] is not None:
            parts.append(
                f"  the best allreduce would take {finding['cost_percent']:.0f} % less time without it"
            )
        parts.append(f"  {finding['advice']}")
    parts.extend(f"warning: {warning}" for warning in document["warnings"])
    return "\n".join(parts)


def describe_predictions(document: dict[str, Any]) -> str:
    """One line a message size and algorithm, fastest first, at most five a size."""
    parts = []
    if document["rank_order"] is not None:
        order = ranks_in_order(document["rank_order"])
        parts.append(f"ranks by position: {order}; groups are of positions, the default is as numbered")
    for size in document["sizes"]:
        parts.append(f"allreduce of {format_bytes(size['message_bytes'])}")
        ranked = sorted(size["predictions"], key=lambda prediction: float(prediction["time_s"]))
        parts.append(
            align(
                ["algorithm", "predicted"],
                [
                    [
                        describe_algorithm(prediction["algorithm"], prediction["params"]),
                        format_seconds(prediction["time_s"]),
                    ]
                    for prediction in ranked[:5]
                ],
            )
        )
    parts.extend(f"warning: {warning}" for warning in document["warnings"])
    return "\n".join(parts)


def describe_optimum(document: dict[str, Any]) -> str:
    """Each collective's best rate and bottleneck, the ceiling of a flat ring, and times by size."""
    rows = []
    for name in ("allreduce", "allgather", "reduce_scatter"):
        best = document[name]
        rates = (format_rate(best["algbw_bytes_per_s"]), format_rate(best["busbw_bytes_per_s"]))
        rows.append([name, "" if best["exact"] else "at most", *rates, best["bottleneck"]["text"]])
    for name, who in (("allreduce_in_network", "switches"), ("allreduce_served", "servers")):
        helped = document.get(name)
        if helped is not None:
            rates = (format_rate(helped["algbw_bytes_per_s"]), format_rate(helped["busbw_bytes_per_s"]))
            known = "" if helped["exact"] else "at most"
            rows.append([f"allreduce, {who} adding", known, *rates, helped["bottleneck"]["text"]])
    ring = document["flat_ring"]
    if ring is not None:
        rates = (format_rate(ring["algbw_bytes_per_s"]), format_rate(ring["busbw_bytes_per_s"]))
        share = ring["algbw_bytes_per_s"] / document["allreduce"]["algbw_bytes_per_s"]
        rows.append(["allreduce by flat rings", "at most", *rates, f"{100 * share:.0f} % of the optimum"])
    parts = [
        f"the optimum on {document['num_ranks']} ranks",
        align(["collective", "", "algbw", "busbw", "bottleneck"], rows, left=(0, 1, 4)),
    ]
    if document["sizes"]:
        parts.append(
            align(
                ["allreduce of", "takes at least", "by flat rings"],
                [
                    [
                        format_bytes(size["message_bytes"]),
                        format_seconds(size["time_s"]),
                        "–" if size["flat_ring_time_s"] is None else format_seconds(size["flat_ring_time_s"]),
                    ]
                    for size in document["sizes"]
                ],
            )
        )
    parts.extend(f"warning: {warning}" for warning in document["warnings"])
    return "\n".join(parts)


def describe_comparison(document: dict[str, Any]) -> str:
    """One line a message size, with the verdict in words."""
    parts = [_compared_rows(document["rows"])]
    if document.get("num_dropped"):
        parts.append(f"  {document['num_dropped']} more were dropped because a rank missed the common start")
    for table in document.get("tables", ()):
        ranks = f"{table['num_ranks']} ranks each" if table["group"] != "world" else "all ranks"
        parts += [f"{table['collective']}, {table['group']}: {ranks}", _compared_rows(table["rows"])]
    if "step" in document:
        from topotune.report.step import describe_step

        parts.append(describe_step(document["step"]))
    parts.extend(f"warning: {warning}" for warning in document["warnings"])
    return "\n".join(parts)


def _compared_rows(rows: list[dict[str, Any]]) -> str:
    header = ["message size", "default", "plan", "ratio", "95 % interval", "samples", "the plan is"]
    cells = [
        [
            format_bytes(row["message_bytes"]),
            format_seconds(row["default_median_s"]),
            format_seconds(row["plan_median_s"]),
            f"{row['ratio']:.2f}",
            f"{row['ratio_ci'][0]:.2f} … {row['ratio_ci'][1]:.2f}",
            str(row["num_samples"]),
            row["verdict"],
        ]
        for row in rows
    ]
    return "\n".join([align(header, cells, left=(0, 6)), *_lost_to_dispatch(rows), *_samples_of_rows(rows)])


def _samples_of_rows(rows: list[dict[str, Any]]) -> list[str]:
    """One line on how the samples of a table looked; none where the document does not say, or has no rows."""
    if not rows or any(row.get("outlier_share") is None for row in rows):
        return []
    num_samples = sum(2 * row["num_samples"] for row in rows)
    outliers = sum(2 * row["num_samples"] * row["outlier_share"] for row in rows) / num_samples
    line = f"samples: {outliers:.1%} of {num_samples} were outliers, none was removed"
    if all(row.get("autocorrelation") is not None for row in rows):
        most = max(rows, key=lambda row: row["autocorrelation"])
        line += f", neighbours correlate by up to {most['autocorrelation']:.2f} "
        line += f"({format_bytes(most['message_bytes'])})"
    modes = [format_bytes(row["message_bytes"]) for row in rows if row.get("two_modes")]
    return [_folded(line + (f", two modes at {', '.join(modes)}" if modes else ", none has two modes"))]


def _folded(sentence: str) -> str:
    return fill(sentence, width=110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _lost_to_dispatch(rows: list[dict[str, Any]]) -> list[str]:
    """Where the plan keeps the default and is slower, which is by dispatch alone: one line, or none."""
    slower = [row for row in rows if row["verdict"] == "slower"]
    lost = [row["message_bytes"] for row in slower if row.get("algorithm") == DEFAULT_ALGORITHM]
    if not lost:
        return []
    worth = worth_from_in_words(lost, [row["message_bytes"] for row in rows if row["ratio"] >= SLOWER])
    listed = ", ".join(map(format_bytes, lost))
    alone = "the plan keeps the default, and is slower by the backend's dispatch alone"
    return [_folded(f"at {listed} {alone}: {worth}")]


def _interval(interval: tuple[float, float] | None, form: Callable[[float], str]) -> str:
    return "–" if interval is None else f"{form(interval[0])} … {form(interval[1])}"
