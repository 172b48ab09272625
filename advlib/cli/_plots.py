"""The plots of a calibration report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advlib.cli import _svg
from advlib.cli._html import Plot
from advlib.cli._pairs import SHOWN, Pairs
from advlib.cli._show import number
from advlib.cli._tasks import Tasks

TASKS_SHOWN = 150
PARTS = 100

Kernels = list[Mapping[str, Any]]


def ratio(document: Mapping[str, Any]) -> Plot:
    """The ratio of each kernel by temperature, with its interval."""
    title = "Effective batch by temperature"
    kernels = [kernel for kernel in document["kernels"] if kernel["estimates"]]
    if not kernels:
        return Plot(title, None, document["not_estimated"])
    values = [1.0]
    for kernel in kernels:
        for row in kernel["estimates"]:
            values += [_float(v) for v in (row["ratio"], *row["interval"])]
    temperatures = _by_size(document["temperatures"])
    frame = _ordinal(temperatures, _svg.padded(values, 0.1))
    parts = [_axes(frame, temperatures, "ratio"), _svg.rule(frame, 1.0)]
    for nth, kernel in enumerate(kernels):
        points = []
        for row in kernel["estimates"]:
            # Side by side, so that intervals at one temperature do not hide each other.
            at = temperatures.index(row["temperature"]) + _dodge(nth, len(kernels))
            value, low, high = (_float(v) for v in (row["ratio"], *row["interval"]))
            told = f"{kernel['title']}, T = {row['temperature']}: {number(value)}"
            points.append((at, value))
            parts.append(_svg.span(frame, at, low, high, _style(nth)))
            parts.append(_svg.dot(frame, at, value, _style(nth), told))
        parts.insert(1, _svg.line(frame, sorted(points), _style(nth)))
    told = (
        "Above 1 the kernel acts like a larger batch. Bars are 95 % intervals for other tasks of "
        "the same kind. A temperature that is picked here for its ratio needs other tasks to "
        "confirm it."
    )
    return Plot(
        title,
        _svg.chart(parts, f"{title}: ratio of each kernel"),
        told,
        _legend(kernels, "the mean of the others"),
    )


def effective_neighbours(document: Mapping[str, Any]) -> Plot:
    """The effective sample size of the weights by temperature."""
    title = "Effective number of neighbours"
    kernels = [kernel for kernel in document["kernels"] if kernel["estimates"]]
    if not kernels:
        return Plot(title, None, document["not_estimated"])
    temperatures = _by_size(document["temperatures"])
    others = document["batch_size"] - 1
    frame = _ordinal(temperatures, (0.0, others * 1.08))
    parts = [_axes(frame, temperatures, "neighbours"), _svg.rule(frame, others)]
    for nth, kernel in enumerate(kernels):
        points = []
        for row in kernel["estimates"]:
            at = temperatures.index(row["temperature"]) + _dodge(nth, len(kernels))
            deciles = row["ess_deciles"]
            points.append((at, row["ess"]))
            parts.append(_svg.span(frame, at, deciles[1], deciles[-2], _style(nth)))
            told = f"{kernel['title']}, T = {row['temperature']}: {number(row['ess'], digits=1)}"
            parts.append(_svg.dot(frame, at, row["ess"], _style(nth), told))
        parts.insert(1, _svg.line(frame, sorted(points), _style(nth)))
    told = (
        "1 / Σ p² of each row of weights: the mean, and bars from the first to the ninth decile. "
        "A kernel that knows nothing of the rewards and has few neighbours only adds noise."
    )
    return Plot(
        title,
        _svg.chart(parts, f"{title} of each kernel"),
        told,
        _legend(kernels, f"all {others:,} others"),
    )


def alike(kernel: Mapping[str, Any], pairs: Pairs | None, nth: int) -> Plot:
    """Cosine of two prompts against the difference of their mean rewards."""
    title = f"Alike prompts, alike rewards? {kernel['title']}"
    if pairs is None:
        return Plot(title, None, "there are no two tasks with a measured reward")
    step = max(1, len(pairs.cosine) // SHOWN)
    shown = slice(None, None, step)
    highs = [row[1] + row[2] for row in pairs.bins]
    frame = _svg.frame(
        _svg.padded(pairs.cosine[shown].tolist() + [row[0] for row in pairs.bins]),
        (0.0, 1.08 * max(*highs, float(pairs.difference[shown].max()), 1e-3)),
    )
    parts = [_svg.axes(frame, "cosine of the prompts", "difference of mean rewards")]
    parts += [
        _svg.dot(frame, x, y, f"{_style(nth)} faint", radius=2)
        for x, y in zip(pairs.cosine[shown].tolist(), pairs.difference[shown].tolist(), strict=True)
    ]
    overall = float(pairs.difference.mean())
    parts.append(_svg.rule(frame, overall))
    parts.append(_svg.line(frame, [row[:2] for row in pairs.bins], _style(nth)))
    for x, y, error, many in pairs.bins:
        parts.append(_svg.span(frame, x, y - error, y + error, _style(nth)))
        parts.append(_svg.dot(frame, x, y, _style(nth), f"{many:,} pairs: {number(y, digits=3)}"))
    found = kernel["correlation"]
    told = (
        f"{len(pairs.cosine):,} pairs of tasks"
        + (f", of which {len(pairs.cosine[shown]):,} are drawn faintly" if step > 1 else "")
        + "; large dots are means of pairs with like cosines. "
        + (
            "One of the two does not vary."
            if found is None
            else f"Correlation {number(found, digits=3)}: the further below 0, the more a prompt "
            "says about the reward."
        )
    )
    legend = (("level", f"mean of all pairs, {number(overall, digits=3)}"),)
    return Plot(title, _svg.chart(parts, title), told, legend)


def rewards(tasks: Tasks) -> Plot:
    """Mean reward of each task, sorted; parts of many tasks where there are many."""
    title = "Rewards by task"
    known = np.flatnonzero(tasks.counts > 0)
    if not known.size:
        return Plot(title, None, "no task has a measured reward")
    order = known[np.argsort(tasks.means[known], kind="stable")]
    means, errors = tasks.means[order], np.nan_to_num(tasks.errors[order])
    if len(order) <= TASKS_SHOWN:
        at, many = np.arange(1, len(order) + 1, dtype=np.float64), "a dot a task"
    else:
        cuts = np.array_split(np.arange(len(order)), PARTS)
        at = np.array([cut.mean() + 1 for cut in cuts])
        means, errors = (np.array([v[cut].mean() for cut in cuts]) for v in (means, errors))
        many = f"a dot for {len(cuts[-1]):,} or {len(cuts[0]):,} tasks in a row"
        if len(cuts[-1]) == len(cuts[0]):
            many = f"a dot for {len(cuts[0]):,} tasks in a row"
    low, high = means - errors, means + errors
    bounds = _svg.padded([*low.tolist(), *high.tolist()])
    frame = _svg.frame((0.5, len(order) + 0.5), bounds)
    whole = [t for t in _svg.ticks(1, max(2, len(order))) if t == int(t) and t <= len(order)]
    parts = [
        _svg.axes(
            frame,
            "tasks, sorted by their mean reward",
            "mean reward",
            x_ticks=[(t, f"{t:,.0f}") for t in whole or [1.0]],
        )
    ]
    radius = 4 if len(order) <= 40 else 2.5
    overall = float(tasks.data.rewards[tasks.data.valid].mean())
    parts.append(_svg.rule(frame, overall))
    for x, y, bottom, top in zip(*(v.tolist() for v in (at, means, low, high)), strict=True):
        if top > bottom:
            parts.append(_svg.span(frame, x, bottom, top, "s0 thin", cap=0))
        parts.append(_svg.dot(frame, x, y, "s0", number(y, digits=3), radius=radius))
    told = f"{many[0].upper()}{many[1:]}; bars are one standard error of the task's mean."
    legend = (("level", f"mean of all rollouts, {number(overall, digits=3)}"),)
    return Plot(title, _svg.chart(parts, title), told, legend)


def _by_size(temperatures: list[Any]) -> list[Any]:
    return sorted(temperatures, key=float)


def _ordinal(temperatures: list[Any], y: tuple[float, float]) -> _svg.Frame:
    """Temperatures side by side: they are chosen by factors, and one of them may be infinite."""
    return _svg.frame((-0.5, len(temperatures) - 0.5), y)


def _axes(frame: _svg.Frame, temperatures: list[Any], name: str) -> str:
    ticks = [
        (float(nth), _svg.number(t) if t != "inf" else "∞") for nth, t in enumerate(temperatures)
    ]
    return _svg.axes(frame, "temperature T", name, x_ticks=ticks)


def _dodge(nth: int, many: int) -> float:
    return 0.12 * (nth - (many - 1) / 2)


def _style(nth: int) -> str:
    return f"s{nth % 6}"


def _legend(kernels: Kernels, rule: str) -> tuple[tuple[str, str], ...]:
    return (*((_style(nth), k["title"]) for nth, k in enumerate(kernels)), ("level", rule))


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
