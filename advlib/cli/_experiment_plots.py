"""The plots of an experiment: a curve an arm, and the differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advlib.cli import _svg
from advlib.cli._experiment_told import main_pairs
from advlib.cli._html import Plot
from advlib.cli._show import number
from advlib.experiments._folder import read_lines

WINDOW = 10  # steps that a point of a curve is the mean of
COLOURS, DASHES = 6, ("", " dashed", " dotted")  # of the page's style sheet
MOST_BANDS = 4  # more of them hide each other
CURVES = (
    ("reward", "Mean reward of a step", "reward"),
    ("mean_abs_shift", "Distance of the baseline from the mean of the others", "reward"),
    ("zero_advantage_share", "Rollouts whose advantage is zero", "share"),
    ("reference_kl_k3", "Divergence from the starting policy", "nats a token"),
    ("entropy", "Entropy of the policy", "nats a token"),
    ("grad_norm", "Norm of the gradient", "norm"),
    ("ess", "Effective number of neighbours of the kernel", "neighbours"),
    ("residual_ratio", "Effective batch, as each step shows it", "ratio"),
    ("length_mean", "Tokens of a response", "tokens"),
)
RULES = {"residual_ratio": 1.0}
# Repeated prompts are each other's only neighbours: what a kernel says of groups is not drawn.
OF_A_KERNEL = ("ess", "residual_ratio")


def plots(record: Mapping[str, Any], folder: Path) -> Iterator[Plot]:
    """Every plot of a run."""
    yield differences(record)
    logs = {arm["name"]: list(_logs(record, arm, folder)) for arm in record["arms"]}
    single = {arm["name"] for arm in record["arms"] if arm["group_size"] == 1}
    for metric, title, unit in CURVES:
        shown = single if metric in OF_A_KERNEL else logs.keys()
        runs = {arm: log if arm in shown else [] for arm, log in logs.items()}
        yield curve(metric, title, unit, runs)
    yield _warm_start(record, folder)


def curve(
    metric: str, title: str, unit: str, logs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]
) -> Plot:
    """One metric by step: the mean over the seeds of each arm, and the span of the seeds."""
    series: dict[str, np.ndarray] = {}
    for arm, runs in logs.items():
        values = [_smooth([_float(step.get(metric)) for step in run]) for run in runs if run]
        if values and any(np.isfinite(run).any() for run in values):
            shortest = min(map(len, values))
            series[arm] = np.array([run[:shortest] for run in values])
    if not series:
        return Plot(title, None, "no arm has logged it")
    banded = len(series) <= MOST_BANDS and max(map(len, series.values())) > 1
    shown = [runs if banded else runs.mean(0) for runs in series.values()]
    every = [value for values in shown for value in values.ravel().tolist()]
    level = RULES.get(metric)
    longest = max(runs.shape[1] for runs in series.values())
    frame = _svg.frame((1, longest), _svg.padded([*every, *([] if level is None else [level])]))
    parts = [_svg.axes(frame, "step", unit)]
    if level is not None:
        parts.append(_svg.rule(frame, level))
    styles = {arm: _style(nth) for nth, arm in enumerate(logs)}
    for arm, drawn in series.items():
        steps = range(1, drawn.shape[1] + 1)
        low, high, middle = drawn.min(0), drawn.max(0), drawn.mean(0)
        if banded and len(drawn) > 1 and np.isfinite(drawn).all():
            rows = zip(steps, low.tolist(), high.tolist(), strict=True)
            parts.append(_svg.band(frame, rows, styles[arm]))
        parts.append(_svg.line(frame, zip(steps, middle.tolist(), strict=True), styles[arm]))
    told = f"Means over {WINDOW} steps"
    if max(len(runs) for runs in series.values()) > 1:
        told += " and over the seeds" + ("; the band spans the seeds" if banded else "")
    legend = tuple((styles[arm], arm) for arm in series)
    return Plot(title, _svg.chart(parts, title), f"{told}.", legend)


def differences(record: Mapping[str, Any]) -> Plot:
    """Differences of accuracy with their intervals, one column a pair of policies."""
    title = "Differences of accuracy"
    decision = record["decision"]
    if decision is None or not decision["comparisons"]:
        return Plot(title, None, "nothing was evaluated, or an item was not scored")
    compared = main_pairs(record)
    others = len(decision["comparisons"]) - len(compared)
    left_out = f" {others} other pairs stand in the table." if others else ""
    values = [0.0]
    for one in compared:
        values += [one["decision"]["lower"], one["decision"]["upper"], *one["seeds"]]
    margins = {c["margin"] for c in record["spec"]["decision_rule"]["criteria"]}
    frame = _svg.frame((-0.6, len(compared) - 0.4), _svg.padded([*values, *margins]))
    names = [(float(nth), str(nth + 1)) for nth in range(len(compared))]
    parts = [_svg.axes(frame, "pair", "difference", x_ticks=names), _svg.rule(frame, 0.0)]
    for nth, one in enumerate(compared):
        seen = one["decision"]["difference"]
        wide, narrow = one["decision"], one["intervals"]["betting"]
        parts.append(_svg.span(frame, nth - 0.08, wide["lower"], wide["upper"], "s0"))
        parts.append(_svg.span(frame, nth + 0.08, narrow["lower"], narrow["upper"], "s1"))
        for value in one["seeds"]:
            parts.append(_svg.dot(frame, nth + 0.25, value, "s2", radius=2.5))
        pair = f"{one['treatment']} - {one['baseline']}: {number(seen)}"
        parts.append(_svg.dot(frame, nth - 0.08, seen, "s0", pair))
        parts.append(_svg.dot(frame, nth + 0.08, seen, "s1", pair))
    pairs = ", ".join(
        f"{nth + 1}: {one['treatment']} - {one['baseline']}" for nth, one in enumerate(compared)
    )
    margin = ", ".join(map(number, sorted(margins)))
    told = f"{pairs}. The margin of the decision is {margin}.{left_out}"
    legend = (("s0", "Hoeffding, the rule"), ("s1", "betting, beside it"), ("s2", "each seed"))
    return Plot(title, _svg.chart(parts, title), told, legend)


def _warm_start(record: Mapping[str, Any], folder: Path) -> Plot:
    title = "Warm start"
    wanted = record["spec"]["warm_start"] is not None
    told_none = "it is not recorded yet" if wanted else "the policy began as it was given"
    steps = _steps(folder / "start" / "warm-start.jsonl")
    if not steps:
        return Plot(title, None, told_none)
    losses = _smooth([step["loss"] for step in steps], 10).tolist()
    frame = _svg.frame((1, len(losses)), _svg.padded([0.0, *losses]))
    parts = [
        _svg.axes(frame, "step", "nats an answer token"),
        _svg.line(frame, enumerate(losses, 1), "s0"),
    ]
    told = "Loss of the imitation of the teacher, means over 10 steps."
    return Plot(title, _svg.chart(parts, title), told)


def _smooth(values: Iterable[float], window: int = WINDOW) -> np.ndarray:
    """Mean of the last few; NaN only where none of them is known."""
    given = np.array(list(values), np.float64)
    known = np.isfinite(given)
    sums = np.cumsum(np.where(known, given, 0.0))
    counts = np.cumsum(known)
    sums[window:] -= sums[:-window].copy()
    counts[window:] -= counts[:-window].copy()
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _logs(
    record: Mapping[str, Any], arm: Mapping[str, Any], folder: Path
) -> Iterator[list[dict[str, Any]]]:
    """The steps of an arm at each seed, those of one under way too."""
    known = {run["seed"]: run.get("metrics_sha256") for run in arm["runs"]}
    for seed in record["spec"]["seeds"]:
        path = folder / "arms" / arm["name"] / f"seed-{seed}" / "metrics.jsonl"
        steps = _steps(path, known.get(seed))
        if steps:
            yield steps


def _style(nth: int) -> str:
    return f"s{nth % COLOURS}{DASHES[nth // COLOURS % len(DASHES)]}"


def _steps(path: Path, sha256: str | None = None) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return read_lines(path, sha256=sha256)


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)
