"""The page of a report: account, score, causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from advlib.cli import _html, _report_told, _svg
from advlib.cli._report_told import STATES
from advlib.cli._show import number, plain, shortened, some

FILES_SHOWN = 10
NAME = 40  # characters of an environment in a table
SERIES = 6  # lines in one picture
METRICS_SHOWN = 40


def page(document: Mapping[str, Any]) -> str:
    """The report as HTML."""
    total = document["total"]
    several = len(document["environments"]) > 1
    plots = [*_pass_at_k(document), *_steps(document)]
    return _html.page(
        "report.html",
        "What was measured?",
        summary=_html.callout(_report_told.sentences(document), "advice"),
        account=_accounts(document),
        score=_scores(document),
        plots=_html.figures(plots),
        causes=_causes(total, document),
        policies=_by_value(document),
        environments=_environments(document) if several else "",
        warnings=_html.bullets("To keep in mind", document["warnings"]),
        facts=_facts(document),
        version=_html.escaped(document["advlib"]),
    )


_STANDING = {
    "namespaced": "a kind of the server's own",
    "legacy": "a label of older files",
    "unknown": "not a registered kind",
}


def _accounts(document: Mapping[str, Any]) -> str:
    rows, strong = [], []
    for name, section in _report_told.sections(document):
        told = section["account"]
        expected = told["expected"]
        parts = [(s, told[s] / max(1, expected), f"{told[s]:,} {s}") for s in STATES]
        counts = (f"{told[state]:,}" for state in ("expected", *STATES))
        rows.append((_name(name), _html.bar(parts), *counts))
        strong.append(section is document["total"] and len(document["environments"]) != 1)
    keys = "".join(f'<span><i class="{state}"></i>{state}</span>' for state in STATES)
    heads = ("environment", "", "expected", *STATES)
    table = _html.table("What became of the rollouts", heads, rows, strong=strong, drawn=(1,))
    return table.replace("</h2>", f'</h2><p class="legend">{keys}</p>', 1)


def _scores(document: Mapping[str, Any]) -> str:
    sections = list(_report_told.sections(document))
    bounds = _svg.padded(
        [
            value
            for _, section in sections
            for value in (section["score"]["mean"], section["score"]["failures_as_zero"])
            if value is not None
        ]
        + [0.0, 1.0]
    )
    rows, strong = [], []
    for (name, section), told in zip(sections, _report_told.scores(document), strict=True):
        rows.append((_name(name), _strip(section["score"], bounds), *told[1:]))
        strong.append(section is document["total"] and len(sections) > 1)
    heads = ("environment", "", *_report_told.SCORE[1:])
    table = _html.table("Score", heads, rows, strong=strong, drawn=(1,))
    keys = (
        '<span><i class="s0"></i>over what was measured, with its 95 % interval</span>'
        '<span><i class="s1 hollow"></i>failures as zeros</span>'
    )
    low, high = (number(bound, digits=2) for bound in bounds)
    note = f'<p class="legend">{keys}<span>scale from {low} to {high}</span></p>'
    return table.replace("</h2>", "</h2>" + note, 1)


def _strip(told: Mapping[str, Any], bounds: tuple[float, float]) -> str:
    if told["mean"] is None:
        return ""
    interval = None if told["interval"] is None else (told["interval"][0], told["interval"][1])
    words = f"{number(told['mean'])}, {_report_told.interval(told)}"
    return _svg.strip(bounds, told["mean"], interval, told["failures_as_zero"], words)


def _causes(section: dict[str, Any], document: Mapping[str, Any], level: int = 2) -> str:
    files = document["files"]
    lost = [
        (shortened(row[0], NAME), row[1], cause["meaning"] or _text(cause), *row[2:])
        for row, cause in zip(
            _report_told.not_measured(section, files), section["not_measured"], strict=True
        )
    ]
    heads = ("what", "became", "meaning", "count", "share", "where")
    return _html.table(
        "What was not measured, and why",
        heads,
        lost,
        text=(0, 1, 2, 5),
        long=(2, 5),
        level=level,
    ) + _html.table(
        "Rewards of 0 by cause",
        ("cause", "", "count"),
        list(_report_told.zeros(section)),
        text=(0, 1),
        long=(0, 1),
        level=level,
    )


def _text(cause: Mapping[str, Any]) -> str:
    """What the file says of a cause, and what is known of its name."""
    if cause["text"]:
        return f"“{cause['text']}”"
    return _STANDING.get(cause["standing"], "")


def _by_value(document: Mapping[str, Any]) -> str:
    found = ""
    for name, title, head in (
        ("policies", "By policy", "policy"),
        ("steps", "By training step", "step"),
    ):
        heads = (head, "rollouts", "measured", "score", "95 % interval")
        rows = list(_report_told.by_value(document[name]))
        found += _html.table(title, heads, rows)
    return found


def _environments(document: Mapping[str, Any]) -> str:
    parts = [
        _html.folded(
            name,
            _causes(section, document, level=3)
            + _html.facts(_section_facts(section))
            + _metrics(section, level=3),
        )
        for name, section in document["environments"].items()
    ]
    return f"<section><h2>Each environment</h2>{''.join(parts)}</section>"


def _section_facts(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    told = section["account"]
    yield "expected", f"by {' and '.join(told['expected_from'])}"
    yield "tasks", f"{told['tasks']:,}; {told['measured_tasks']:,} with a measured rollout"
    passed = _report_told.passes(section)
    if passed is not None:
        yield _report_told.pass_name(section), passed
    yield "as zeros", f"had rows that do not count voted as zeros: {_report_told.effect(section)}"
    if section["score"]["no_interval"]:
        yield "interval", section["score"]["no_interval"]


def _metrics(section: Mapping[str, Any], level: int = 2) -> str:
    """Statistics of every number that the rows have."""
    metrics = section["aggregate"]["metrics"]
    names = [n.removeprefix("mean/") for n in metrics if n.startswith("mean/")]
    rows = [
        (
            name,
            *(number(metrics.get(f"{what}/{name}")) for what in ("mean", "std", "min", "median")),
            number(metrics.get(f"max/{name}")),
        )
        for name in names[:METRICS_SHOWN]
    ]
    if len(names) > METRICS_SHOWN:
        rows.append((f"and {len(names) - METRICS_SHOWN:,} more",) + ("",) * 5)
    heads = ("number", "mean", "std", "min", "median", "max")
    title = "Numbers of the measured rows"
    return _html.table(title, heads, rows, level=level) if len(names) > 1 else ""


def _facts(document: Mapping[str, Any]) -> str:
    rows = [
        ("files", some(document["files"], limit=FILES_SHOWN)),
        *(row for row in _report_told.facts(document) if row[0] != "files"),
        ("reward", document["reward"]),
        ("groups", ", ".join(document["group_by"])),
    ]
    metrics = _metrics(document["total"]) if len(document["environments"]) == 1 else ""
    return f"{metrics}<section><h2>What was looked at</h2>{_html.facts(rows)}</section>"


def _pass_at_k(document: Mapping[str, Any]) -> Iterator[_html.Plot]:
    sections = [
        (name, section["pass_at_k"])
        for name, section in document["environments"].items()
        if section["pass_at_k"] is not None
    ]
    if len(sections) > SERIES:
        sections = [("all", document["total"]["pass_at_k"])]
    if not sections:
        return
    ks = sorted({row["k"] for _, found in sections for row in found["values"]})
    values = [row["value"] for _, found in sections for row in found["values"]]
    binary = all(found["rule"] == "combinatorial" for _, found in sections)
    bounds = (0.0, 1.0) if binary else _svg.padded([0.0, *values])
    frame = _svg.frame((-0.5, len(ks) - 0.5), bounds)
    ticks = [(float(nth), f"{k:,}") for nth, k in enumerate(ks)]
    parts = [_svg.axes(frame, "k", "pass@k" if binary else "largest of k", x_ticks=ticks)]
    for nth, (name, found) in enumerate(sections):
        points = [(float(ks.index(row["k"])), row["value"]) for row in found["values"]]
        parts.append(_svg.line(frame, points, f"s{nth % SERIES}"))
        for (x, y), row in zip(points, found["values"], strict=True):
            told = f"{plain(name)}, k = {row['k']}: {number(y)} over {row['tasks']:,} tasks"
            parts.append(_svg.dot(frame, x, y, f"s{nth % SERIES}", told))
    title = "Pass@k" if binary else "Largest reward of k"
    told = (
        "Over tasks with at least k measured rollouts; where tasks have different numbers of them, "
        "the points of one line are over different tasks."
    )
    legend = tuple((f"s{nth % SERIES}", _name(name)) for nth, (name, _) in enumerate(sections))
    yield _html.Plot(title, _svg.chart(parts, title), told, legend if len(sections) > 1 else ())


def _steps(document: Mapping[str, Any]) -> Iterator[_html.Plot]:
    rows = [
        row
        for row in document["steps"]
        if row["step"] is not None and row["score"]["mean"] is not None
    ]
    if len(rows) < 2:
        return
    ends = [end for row in rows for end in (row["score"]["interval"] or [])]
    means = [row["score"]["mean"] for row in rows]
    steps = [float(row["step"]) for row in rows]
    frame = _svg.frame(_svg.padded(steps), _svg.padded([*means, *ends]))
    parts = [
        _svg.axes(frame, "training step", "score"),
        _svg.line(frame, zip(steps, means, strict=True), "s0"),
    ]
    for step, row in zip(steps, rows, strict=True):
        low, high = row["score"]["interval"] or (float("nan"), float("nan"))
        parts.append(_svg.span(frame, step, low, high, "s0"))
        told = f"step {row['step']}: {number(row['score']['mean'])}"
        parts.append(_svg.dot(frame, step, row["score"]["mean"], "s0", told))
    title = "Score by training step"
    told = "Bars are 95 % intervals, where a step has several tasks."
    yield _html.Plot(title, _svg.chart(parts, title), told)


def _name(name: str) -> str:
    return shortened(name, NAME)
