"""A table of rewards, tasks by rollouts, with cells that were not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks


class Tasks(NamedTuple):
    """The tasks with enough measurements, and what is known about each.

    Attributes:
        rewards: (N, G) rewards minus their mean, which cancels, since baselines follow a shift; the
            measured ones of a row come first.
        counts: (N,) rollouts measured.
        means: (N,) mean of the measured rewards, minus the mean of all.
        variances: (N,) their sample variance, divided by n - 1; 0 for a single one.
        rows: (N,) row of the given table.
        num_given: rows of the given table.
    """

    rewards: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    rows: np.ndarray
    num_given: int


def read_tasks(rewards: Any, needed: int) -> Tasks:
    """Read a table of rewards.

    Args:
        rewards: (tasks, rollouts), NaN or None where there is no measurement; or one sequence a
            task, of any length.
        needed: measured rollouts that a task must have to be kept; at least 1.

    Raises:
        TypeError: an entry is no number.
        ValueError: not two dimensions, or a reward is infinite.
    """
    table = _table(rewards)
    if np.isinf(table).any():
        bad = _checks.rows(np.isinf(table).any(1))
        raise ValueError(f"rewards must be finite, or NaN where unmeasured; {bad}: infinity")
    rows = np.flatnonzero((~np.isnan(table)).sum(1) >= needed)
    kept = table[rows]
    measured = ~np.isnan(kept)
    counts = measured.sum(1)
    centred = np.where(measured, kept - (kept[measured].mean() if len(rows) else 0.0), 0.0)
    order = np.argsort(~measured, axis=1, kind="stable")
    means = centred.sum(1) / counts
    deviations = np.where(measured, centred - means[:, None], 0.0)
    variances = np.square(deviations).sum(1) / np.maximum(counts - 1, 1)
    ordered = np.take_along_axis(centred, order, 1)
    return Tasks(ordered, counts, means, variances, rows, len(table))


def _table(rewards: Any) -> np.ndarray:
    ragged = isinstance(rewards, Sequence) and not isinstance(rewards, str)
    if ragged and len({len(row) if hasattr(row, "__len__") else -1 for row in rewards}) > 1:
        if not all(hasattr(row, "__len__") and not isinstance(row, str) for row in rewards):
            raise ValueError("rewards must be one sequence of rewards a task; got numbers beside")
        longest = max(len(row) for row in rewards)
        rewards = [[*row, *[None] * (longest - len(row))] for row in rewards]
    table = _checks.as_numpy("rewards", rewards)
    if table.ndim != 2:
        raise ValueError(
            "rewards must have two dimensions, (tasks, rollouts), NaN where unmeasured; "
            f"got shape {table.shape}"
        )
    if table.dtype.kind not in "biuf" and table.dtype.name != "bfloat16":
        raise TypeError(f"rewards must be numbers; got dtype {table.dtype}")
    return table.astype(np.float64)
