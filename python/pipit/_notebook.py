"""Results as notebooks show them, as tables of pandas, as plots of matplotlib, and as pages.

Everything is static: no script and nothing from elsewhere, so that saved notebooks show it too.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pipit import _pipit
from pipit._errors import ArgumentError, Error
from pipit._records import to_dict

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

COLOURS = ("#2f6fde", "#e07b1a", "#1f9d6b", "#c8415b", "#7d5bd0", "#0f9aae", "#a8780a", "#8792a2")  # of the report
SHOWN = 10  # rows of a table that stand outside of its fold


def _repr_html_(record: Any) -> str:
    """The HTML that a notebook shows for a result."""
    return _PARTS[type(record).__name__](record)


def page(record: Any) -> str:
    """A page with the same, for a browser."""
    title = f"pipit: {type(record).__name__}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="color-scheme" content="light dark">'
        f'<body style="font: 14px/1.4 system-ui, sans-serif; margin: 2em">{_repr_html_(record)}</body></html>\n'
    )


def to_pandas(record: Any) -> pandas.DataFrame:
    """The rows of a result: the layers of Profile and Difference, the rows of Bench and sweeps, the steps of TunedPlan
    and PrunedModel. The columns have the keys of to_dict(); those of nested objects are joined with a dot."""
    try:
        import pandas
    except ImportError as error:
        raise Error(f"{error}; `pip install pandas`") from error
    document = to_dict(record)
    rows = next(document[key] for key in ("layers", "rows", "results", "steps") if key in document)
    return pandas.json_normalize(rows)


def plot_roofline(record: Any, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
    """Draws the arithmetic rate of each layer that multiplies against its intensity, with the roofs of the machine if
    the profile has floors, and returns the axes. Larger dots take more time. Raises Error without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise Error(f"{error}; `pip install matplotlib`") from error
    document = to_dict(record)
    if ax is None:
        ax = pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]
    layers = [layer for layer in document["layers"] if layer["flop_per_byte"] > 0 and layer["median_ms"] > 0]
    lanes = _Lanes(document["layers"])
    for index, lane in enumerate(lanes.names):
        own = [layer for layer in layers if lanes.of(layer) == index]
        if own:
            ax.scatter(
                [layer["flop_per_byte"] for layer in own],
                [2e-6 * layer["done_macs"] / layer["median_ms"] for layer in own],
                s=[20 + 2000 * layer["share"] for layer in own],
                color=COLOURS[index],
                alpha=0.8,
                label=lane,
            )
    if layers and document.get("ceilings"):
        _draw_roofs(ax, document, layers)
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="GFLOP/s", title=_title(document))
    ax.grid(alpha=0.3)
    if layers:
        ax.legend(fontsize="small", markerscale=0.5)
    return ax


def _draw_roofs(ax: matplotlib.axes.Axes, document: dict[str, Any], layers: list[dict[str, Any]]) -> None:
    used = {layer["products"] for layer in layers}
    tops: dict[str, float] = {}
    for one in document["ceilings"]["arithmetic"]:
        if one["products"] in used:
            tops[one["products"]] = max(tops.get(one["products"], 0), one["gflops"]["best"])
    most = max(layer["flop_per_byte"] for layer in layers)
    least = min(layer["flop_per_byte"] for layer in layers)
    for name, rate in tops.items():
        ax.axhline(rate, color="gray", linewidth=1)
        ax.annotate(name, (most, rate), fontsize="small", va="bottom", ha="right")
    for memory in document["ceilings"]["memory"]:
        keys = ("read_gb_per_s", "write_gb_per_s", "copy_gb_per_s", "add_gb_per_s")
        rate = max(memory[key]["best"] for key in keys)
        end = max(tops.values()) / rate
        begin = min(least, end / 10)
        ax.plot([begin, end], [begin * rate, end * rate], color="gray", linewidth=1, linestyle="--")
        ax.annotate(memory["name"], (begin, begin * rate), fontsize="small")


def pareto_svg(record: Any) -> str:
    """Accuracy against time as an SVG document: the steps of TunedPlan and PrunedModel, the rows of SparsitySweep."""
    title, points, least, what = _POINTS[type(record).__name__](record)
    if not points:
        raise ArgumentError(f"this {type(record).__name__} has no step that was measured, so there is nothing to draw")
    return _pipit.pareto_svg(title, points, least, what)


def _point(ms: float, accuracy: float, label: str, pareto: bool, chosen: bool, front: str = "") -> _pipit.ParetoPoint:
    point = _pipit.ParetoPoint()
    point.ms, point.accuracy, point.label = ms, accuracy, label
    point.pareto, point.chosen, point.front = pareto, chosen, front
    return point


Points = tuple[str, list[_pipit.ParetoPoint], float | None, str]


def _tuned_points(tuned: _pipit.TunedPlan) -> Points:
    points = [
        _point(
            step.ms,
            100 * step.drop.base - step.expected_drop,
            f"{step.kept} of {len(tuned.orders[step.order])} layers in floating point",
            step.pareto,
            step.chosen,
        )
        for step in tuned.steps
    ]
    least = 100 * tuned.steps[0].drop.base - tuned.judged.max_points if tuned.steps else None
    return "Accuracy and time in mixed precision", points, least, f"{tuned.measure} by the expected drop, %"


def _pruned_points(pruned: _pipit.PrunedModel) -> Points:
    dense = 100 * pruned.dense_right
    points = [_point(pruned.dense_ms, dense, "dense", True, False)] if pruned.steps else []
    for step in pruned.steps:
        label = f"{step.speedup.median:.2f} times as fast"
        points.append(_point(step.ms, dense - step.expected_drop, label, step.pareto, step.chosen))
    least = dense - pruned.judged.max_points if pruned.judged else None
    return "Accuracy and time, pruned", points, least, f"{pruned.measure} by the expected drop, %"


def _swept_points(sweep: _pipit.SparsitySweep) -> Points:
    points = []
    for row in sweep.rows:
        if not row.problem:
            label = f"{row.layer} {row.precision} {row.mode or 'dense'}, keep {row.keep:g}"
            output = 100 * (1 - (row.refit or row.error).relative_l2)
            points.append(_point(row.times.ms, output, label, False, False, f"{row.layer} {row.precision}"))
    for point in points:
        point.pareto = not any(
            other.front == point.front
            and other.ms <= point.ms
            and other.accuracy >= point.accuracy
            and (other.ms < point.ms or other.accuracy > point.accuracy)
            for other in points
        )
    return "Structured sparsity: time and output kept", points, None, "of the output, % (1 - relative error)"


_POINTS: dict[str, Callable[[Any], Points]] = {
    "TunedPlan": _tuned_points,
    "PrunedModel": _pruned_points,
    "SparsitySweep": _swept_points,
}


class _Lanes:
    """Layer types with their kernels, by time; the last one is for all that are left."""

    def __init__(self, layers: Iterable[dict[str, Any]]) -> None:
        sums: dict[str, float] = {}
        for layer in layers:
            sums[self._key(layer)] = sums.get(self._key(layer), 0) + layer["median_ms"]
        self._keys = sorted(sums, key=lambda key: -sums[key])
        self.names = self._keys[: len(COLOURS)]
        if len(self._keys) > len(COLOURS):
            self.names[-1] = f"{len(self._keys) - len(COLOURS) + 1} others"

    def of(self, layer: dict[str, Any]) -> int:
        return min(self._keys.index(self._key(layer)), len(COLOURS) - 1)

    @staticmethod
    def _key(layer: dict[str, Any]) -> str:
        return f"{layer['type']} · {layer['kernel']}"


def _text(value: object) -> str:
    """Unchecked text from a model file as HTML; control characters and direction marks are escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return html.escape(shown)


def _digits(value: float, count: int = 4) -> str:
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    whole = math.floor(math.log10(abs(value))) + 1
    return f"{value:.{max(0, count - max(whole, 1))}f}"


def _shape(extents: Iterable[int]) -> str:
    return "×".join(map(str, extents))


def _title(document: dict[str, Any]) -> str:
    threads = document.get("threads", 0)
    parts = [document["model"], document["precision"], f"batch {document['batch']}"]
    if document["device"] == "cpu":
        parts.append(f"{threads} thread{'' if threads == 1 else 's'}")
    return ", ".join(parts)


Row = Sequence[str]


def _table(columns: Sequence[tuple[str, bool]], rows: Sequence[Row], shown: int = SHOWN) -> str:
    """A table; cells are HTML. A column is a title, and whether it holds numbers. The rows after the first ones are
    folded away."""

    def cells(tag: str, row: Row) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if is_number else "left"}">{cell}</{tag}>'
            for cell, (_, is_number) in zip(row, columns, strict=True)
        )

    def table(some: Sequence[Row]) -> str:
        head = cells("th", [title for title, _ in columns])
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in some)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    if len(rows) <= shown:
        return table(rows)
    rest = len(rows) - shown
    return f"{table(rows[:shown])}<details><summary>{rest} more</summary>{table(rows[shown:])}</details>"


def _bar(share: float) -> str:
    width = max(0.0, min(1.0, share)) * 60
    return (
        f'<span style="display:inline-block;width:{width:.0f}px;height:.7em;background:{COLOURS[0]}"></span> '
        f"{100 * share:.1f} %"
    )


def _timeline(document: dict[str, Any]) -> str:
    """One run as it went, as an SVG picture: a lane for each layer type and kernel."""
    run, layers, lanes = document["run"], document["layers"], _Lanes(document["layers"])
    width, left, lane_height = 900, 190, 22
    height = lane_height * len(lanes.names) + 24
    end = max([run["ms"], *(call["begin_ms"] + call["ms"] for call in run["calls"])])
    scale = (width - left - 10) / end if end > 0 else 0
    label = f"Timeline of run {run['index']}: {len(run['calls'])} kernel calls in {_digits(run['ms'])} ms"
    picture = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        'style="width:100%;max-width:900px;font:11px sans-serif;fill:currentColor">'
    ]
    for index, lane in enumerate(lanes.names):
        name = lane if len(lane) <= 30 else lane[:29] + "…"
        picture.append(f'<text x="{left - 8}" y="{lane_height * index + 15}" text-anchor="end">{_text(name)}</text>')
    for call in run["calls"]:
        layer = layers[call["layer"]]
        lane_index = lanes.of(layer)
        hint = f"{layer['name']}: {_digits(call['ms'])} ms, {layer['geometry']}, {_shape(layer['output'])}"
        picture.append(
            f'<rect x="{left + scale * call["begin_ms"]:.1f}" y="{lane_height * lane_index + 2}" '
            f'width="{max(0.8, scale * call["ms"]):.1f}" height="{lane_height - 4}" '
            f'fill="{COLOURS[lane_index]}"><title>{_text(hint)}</title></rect>'
        )
    bottom = lane_height * len(lanes.names)
    for part in range(5):
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        picture.append(
            f'<text x="{left + scale * end * part / 4:.0f}" y="{bottom + 16}" text-anchor="{anchor}">'
            f"{_digits(end * part / 4, 3)} ms</text>"
        )
    picture.append("</svg>")
    return "".join(picture)


def _profile_html(profile: _pipit.Profile) -> str:
    document = to_dict(profile)
    run = f"{_digits(document['end_to_end_ms'])} ms"
    tenths = f"{_digits(document['end_to_end_p10_ms'])} to {_digits(document['end_to_end_p90_ms'])}"
    facts = f"a run takes {run} (tenths {tenths}, {document['runs']} runs), layers {_digits(document['layers_ms'])} ms"
    floors = any("floor_us" in layer for layer in document["layers"])
    columns = [("layer", False), ("type", False), ("kernel", False), ("output", False), ("", False)]
    columns += [("ms", True), ("share", False), ("GFLOP/s", True)] + ([("× floor", True)] if floors else [])
    rows = []
    for layer in sorted(document["layers"], key=lambda one: -one["median_ms"]):
        row = [_text(layer[key]) for key in ("name", "type", "kernel")] + [_shape(layer["output"])]
        row += [_text(layer["geometry"]), _digits(layer["median_ms"]), _bar(layer["share"])]
        row.append(_digits(layer["gflops"], 3) if layer["macs"] else "")
        if floors:
            row.append(_digits(layer["x_floor"], 3) if layer.get("x_floor") else "")
        rows.append(row)
    return f"<p><b>{_text(_title(document))}</b>: {facts}</p>{_timeline(document)}{_table(columns, rows)}"


def _verdicts(record: _pipit.TunedPlan | _pipit.PrunedModel) -> list[str]:
    verdicts = [record.judged.text] if record.judged else []
    if not isinstance(record, _pipit.PrunedModel):
        return verdicts
    if record.problem:
        return [record.problem]
    speed = record.speedup
    goal = "" if record.reached is None else ", goal reached" if record.reached else ", goal missed"
    return [f"{speed.median:.2f} [{speed.low:.2f}, {speed.high:.2f}] times as fast{goal}", *verdicts]


def _steps_html(record: _pipit.TunedPlan | _pipit.PrunedModel) -> str:
    pruned = isinstance(record, _pipit.PrunedModel)
    columns = [("step", False), ("ms", True), ("drop, points", True), ("expected", True), ("", False)]
    rows = []
    for step in record.steps:
        if isinstance(step, _pipit.PruneStep):
            name = f"{step.speedup.median:.2f} [{step.speedup.low:.2f}, {step.speedup.high:.2f}] times as fast"
        else:
            name = f"{step.kept} layers kept, by {step.order}"
        mark = "chosen" if step.chosen else "Pareto" if step.pareto else ""
        drop = f"{step.drop.points:.2f} [{step.drop.low:.2f}, {step.drop.high:.2f}]"
        rows.append([_text(name), _digits(step.ms), drop, f"{step.expected_drop:.2f}", mark])
    verdict = _text("; ".join(_verdicts(record)))
    picture = pareto_svg(record) if record.steps else ""
    title = "Pruned model" if pruned else f"Mixed precision, kept layers in {_text(record.keep_as)}"  # type: ignore[union-attr]
    return f"<p><b>{title}</b>: {verdict}</p>{picture}{_table(columns, rows)}"


def _sparsity_html(sweep: _pipit.SparsitySweep) -> str:
    columns = [("layer", False), ("precision", False), ("mode", False), ("keep", True), ("ms", True)]
    columns += [("× dense", True), ("relative error", True), ("refitted", True), ("problem", False)]
    rows = []
    for row in sweep.rows:
        cells = [_text(row.layer), row.precision, row.mode or "dense", f"{row.keep:g}"]
        if row.problem:
            cells += ["", "", "", "", _text(row.problem.split("\n")[0])]
        else:
            refit = _digits(row.refit.relative_l2, 3) if row.refit else ""
            speedup = f"{row.speedup.median:.2f}"
            cells += [_digits(row.times.ms), speedup, _digits(row.error.relative_l2, 3), refit, ""]
        rows.append(cells)
    picture = pareto_svg(sweep) if any(not row.problem for row in sweep.rows) else ""
    return f"<p><b>Structured sparsity</b> on {_text(sweep.device)}</p>{picture}{_table(columns, rows)}"


def _convolutions_html(sweep: _pipit.ConvSweep) -> str:
    means = [
        [
            one.precision,
            _text(one.backend),
            _text(one.base),
            str(one.all.rows),
            f"{one.all.mean:.2f} [{one.all.low:.2f}, {one.all.high:.2f}]",
            str(one.faster),
            str(one.slower),
        ]
        for one in sweep.summaries
    ]
    summary = [("precision", False), ("kernel", False), ("over", False), ("layers", True), ("mean speedup", True)]
    summary += [("faster", True), ("slower", True)]
    columns = [("layer", False), ("precision", False), ("runs", False), ("ms", True), ("speedups", False)]
    rows = []
    for row in sweep.rows:
        point = row.point
        layer = f"{point.batch}×{point.in_channels}×{point.size}×{point.size} → {point.out_channels}"
        layer += f", {point.kernel}×{point.kernel}"
        layer += f" s{point.stride}" if point.stride > 1 else ""
        if row.problem:
            rows.append([layer, row.precision, _text(row.problem.split("\n")[0]), "", ""])
        else:
            over = ", ".join(f"{_text(b.base)} {b.speedup.median:.2f}" for b in row.against if not b.problem)
            rows.append([layer, row.precision, _text(row.runs), _digits(row.times.ms), over])
    return f"<p><b>Convolutions</b> on {_text(sweep.device)}</p>{_table(summary, means, 50)}{_table(columns, rows)}"


def _difference_html(difference: _pipit.Difference) -> str:
    columns = [("layer", False), ("type", False), ("precision", False), ("SQNR, dB", True), ("share alone", True)]
    columns += [("clipped", True), ("worst channel", True)]
    by_noise = sorted(difference.layers, key=lambda one: (-(one.share_alone or 0), one.error.sqnr_db))
    rows = [
        [
            _text(layer.name),
            _text(layer.type),
            layer.precision,
            _digits(layer.error.sqnr_db, 3),
            "" if layer.share_alone is None else _bar(layer.share_alone),
            "" if layer.clipped is None else f"{100 * layer.clipped:.2f} %",
            "" if layer.worst_channel is None else str(layer.worst_channel),
        ]
        for layer in by_noise
    ]
    other = f"{difference.other_answers} of {difference.images} images with another answer"
    output = f"{_digits(difference.output.sqnr_db, 3)} dB at the output"
    return f"<p><b>INT8 against fp32</b>: {output}, {other}</p>{_table(columns, rows)}"


def _bench_html(bench: _pipit.Bench) -> str:
    columns = [("model", False), ("setting", False), ("ms", True), ("p90", True), ("images/s", True), ("", False)]
    rows = []
    for row in bench.rows:
        cells = [_text(row.model), _text(row.setting)]
        if row.error:
            cells += ["", "", "", _text(row.error)]
        else:
            cells += [_digits(row.median_ms), _digits(row.p90_ms), _digits(row.images_per_s, 3), _text(row.note)]
        rows.append(cells)
    ratios = "".join(
        f"<li>{_text(one.second)} over {_text(one.first)}: {_text(one.ratio.text)}</li>" for one in bench.comparisons
    )
    return _table(columns, rows, 30) + (f"<ul>{ratios}</ul>" if ratios else "")


_PARTS: dict[str, Callable[[Any], str]] = {
    "Profile": _profile_html,
    "TunedPlan": _steps_html,
    "PrunedModel": _steps_html,
    "SparsitySweep": _sparsity_html,
    "ConvSweep": _convolutions_html,
    "Difference": _difference_html,
    "Bench": _bench_html,
}
