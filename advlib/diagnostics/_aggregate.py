"""The numbers that a run publishes, over measured rollouts, with what was left out beside them.

Names and rules are those of NeMo Gym's aggregate metrics, with one difference: the caller says
which rows are masked, so that a mask in an older place is a mask here too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._by_task import by_task

Metrics = dict[str, float | int]


class Aggregate(NamedTuple):
    """Aggregate metrics.

    Attributes:
        metrics: ``mean/x``, ``max/x``, ``min/x``, ``median/x`` and ``std/x`` of every column over
            the scored rows, statistics across repeats, and coverage where a row is masked. Without
            a scored row there is coverage alone: no mean is invented.
        key_metrics: every ``mean/x``, and coverage.
        groups: one a task with a scored row: its ``task``, the same statistics, ``num_rollouts``,
            ``expected_num_rollouts``, ``missing_num_rollouts``, ``reward_profile_completion_pct``,
            and ``rollout_infos``, the numbers of each rollout in the order of the index.
        repeats: one a rollout index, where there are several among the scored rows.
        num_repeats: distinct rollout indices of all rows, masked ones too; None without a scored
            row.
    """

    metrics: Metrics
    key_metrics: Metrics
    groups: list[dict[str, Any]]
    repeats: list[dict[str, Any]]
    num_repeats: int | None


def aggregate(
    tasks: Sequence[Hashable],
    rollouts: Sequence[int],
    masked: Any,
    columns: Mapping[str, Any],
    *,
    expected: Sequence[tuple[Hashable, int]] | None = None,
    groups: bool = True,
    repeats: bool = True,
) -> Aggregate:
    """What a run publishes about its rollouts.

    The mean is over rollouts, not over tasks. The standard deviation divides by n - 1; where every
    one of a frame (the run, a task, a repeat) is undefined those of complete columns are 0, and
    otherwise an undefined one is left out.

    Args:
        tasks: (B,) the task of each row.
        rollouts: (B,) its index among the rollouts of its task.
        masked: (B,) bool, rows whose reward is no measurement; they leave every column.
        columns: numbers by name, (B,) each, NaN or None where a row has none; "reward" is one.
        expected: pairs (task, rollout) that were to be made; those of the rows by default. Masked
            pairs leave it too, so that masked is never missing.
        groups: whether the tasks are wanted one by one.
        repeats: whether the rollout indices are, and the statistics across them.

    Returns:
        :class:`Aggregate`.

    Raises:
        ValueError: lengths differ, or a pair (task, rollout) stands twice.
        TypeError: a column holds no numbers.
    """
    pairs = list(zip(tasks, rollouts, strict=True))
    hidden = _checks.as_numpy("masked", masked)
    if hidden.shape != (len(pairs),):
        raise ValueError(f"masked must have {len(pairs)} entries; got shape {hidden.shape}")
    hidden = hidden.astype(bool)
    frame = {name: _column(name, values, len(pairs)) for name, values in columns.items()}
    _check_pairs(pairs)
    out = {pair for pair, mask in zip(pairs, hidden.tolist(), strict=True) if mask}
    covered = _coverage(pairs, hidden)
    if hidden.all():
        return Aggregate(dict(covered), dict(covered), [], [], None)
    kept = np.flatnonzero(~hidden)
    by_repeat: dict[int, list[int]] = {}
    for row in kept.tolist():
        by_repeat.setdefault(pairs[row][1], []).append(row)
    num_tasks = len({pairs[row][0] for row in kept.tolist()})
    by_group = (
        by_task(pairs, kept, frame, _wanted([*(expected or ()), *pairs], out)) if groups else []
    )
    by_index = (
        [_repeat(nth, by_repeat[nth], frame, num_tasks) for nth in sorted(by_repeat)]
        if repeats and len(by_repeat) > 1
        else []
    )
    metrics = {**_statistics(frame, kept), **_across(by_index, list(frame)), **covered}
    means = {name: value for name, value in metrics.items() if name.startswith("mean/")}
    num_repeats = len({rollout for _, rollout in pairs})
    return Aggregate(metrics, {**means, **covered}, by_group, by_index, num_repeats)


def _coverage(pairs: list[tuple[Hashable, int]], masked: np.ndarray) -> Metrics:
    if not masked.any():
        return {}
    measured = {task for (task, _), mask in zip(pairs, masked.tolist(), strict=True) if not mask}
    return {
        "coverage/measured_rollouts": int((~masked).sum()),
        "coverage/masked_rollouts": int(masked.sum()),
        "coverage/measured_tasks": len(measured),
        "coverage/fully_masked_tasks": len({task for task, _ in pairs} - measured),
    }


def _statistics(frame: Mapping[str, np.ndarray], rows: Any) -> Metrics:
    """Statistics of each column; a cell that is missing is skipped."""
    cells = {name: column[rows] for name, column in frame.items()}
    known = {name: cell[~np.isnan(cell)] for name, cell in cells.items()}
    result: Metrics = {}
    alone = all(len(cell) < 2 for cell in known.values())
    for name, cell in known.items():
        if not len(cell):
            continue
        for what, of in (
            ("mean", np.mean),
            ("max", np.max),
            ("min", np.min),
            ("median", np.median),
        ):
            result[f"{what}/{name}"] = float(of(cell))
        if len(cell) > 1:
            result[f"std/{name}"] = float(cell.std(ddof=1))
        elif alone and len(cell) == len(cells[name]):
            result[f"std/{name}"] = 0.0
    return result


def _wanted(
    expected: list[tuple[Hashable, int]], masked: set[tuple[Hashable, int]]
) -> dict[Hashable, int]:
    """Rollouts that were to be made of each task; one that is masked was never missing."""
    wanted: dict[Hashable, int] = {}
    for pair in dict.fromkeys(expected):
        if pair not in masked:
            wanted[pair[0]] = wanted.get(pair[0], 0) + 1
    return wanted


def _repeat(
    nth: int, rows: list[int], frame: Mapping[str, np.ndarray], num_tasks: int
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "rollout_index": nth,
        "sample_count": len(rows),
        "missing_count": num_tasks - len(rows),
    }
    for name, column in frame.items():
        cell = column[rows]
        cell = cell[~np.isnan(cell)]
        if len(cell):
            result |= {f"{what}/{name}": value for what, value in described(cell).items()}
            low, high = np.quantile(cell, [0.25, 0.75])
            result |= {f"p25/{name}": float(low), f"p75/{name}": float(high)}
            result |= {f"min/{name}": float(cell.min()), f"max/{name}": float(cell.max())}
    return result


def described(values: np.ndarray) -> dict[str, float]:
    """Mean, median, deviation, standard error, and Student's interval from two values on."""
    from scipy.special import stdtrit

    many, mean = len(values), float(values.mean())
    deviation = float(values.std(ddof=1)) if many > 1 else 0.0
    error = deviation / many**0.5
    result = {"mean": mean, "median": float(np.median(values)), "std": deviation, "sem": error}
    if many > 1:
        half = float(stdtrit(many - 1, 0.975)) * error
        result |= {"ci_low_95": mean - half, "ci_high_95": mean + half}
    return result


def _across(repeats: list[dict[str, Any]], names: list[str]) -> Metrics:
    """The mean of each repeat, described over the repeats."""
    result: Metrics = {}
    for name in names:
        means = [repeat[f"mean/{name}"] for repeat in repeats if f"mean/{name}" in repeat]
        if means:
            found = described(np.array(means)) | {"min": min(means), "max": max(means)}
            for what, value in found.items():
                prefix = what.replace("sem", "se")
                result[f"{prefix}_across_repeats/mean/{name}"] = value
    return result


def _column(name: str, values: Any, size: int) -> np.ndarray:
    column = _checks.as_numpy(name, values)
    if column.dtype.kind not in "biuf":
        raise TypeError(f"the column {name!r} must be numbers; got dtype {column.dtype}")
    if column.shape != (size,):
        raise ValueError(f"the column {name!r} must have {size} entries; got {column.shape}")
    return column.astype(np.float64)


def _check_pairs(pairs: list[tuple[Hashable, int]]) -> None:
    seen: set[tuple[Hashable, int]] = set()
    for pair in pairs:
        if pair in seen:
            raise ValueError(f"task {pair[0]!r} has two rollouts with the index {pair[1]}")
        seen.add(pair)
