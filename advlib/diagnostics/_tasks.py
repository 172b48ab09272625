"""A table of rewards, tasks by rollouts, with cells that were not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks


class Tasks(NamedTuple):
    """What is known about each task.

    Attributes:
        rewards: (N, G) rewards minus ``centre``; the measured ones of a row come first.
        counts: (N,) rollouts measured.
        means: (N,) mean of the measured rewards, minus ``centre``; 0 where there is none.
        variances: (N,) their sample variance (divided by n - 1); 0 where there is none.
        centre: a number near the rewards' mean; baselines follow a shift, so it cancels.
        rows: (N,) row of the given table.
    """

    rewards: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    centre: float
    rows: np.ndarray

    def at_least(self, count: int) -> Tasks:
        """The tasks with so many measured rollouts."""
        keep = self.counts >= count
        return Tasks(
            self.rewards[keep],
            self.counts[keep],
            self.means[keep],
            self.variances[keep],
            self.centre,
            self.rows[keep],
        )


def read_tasks(rewards: Any) -> Tasks:
    """Read a table of rewards.

    Args:
        rewards: (tasks, rollouts), NaN or None where there is no measurement; or one sequence a
            task, of any length.

    Raises:
        TypeError: an entry is no number.
        ValueError: not two dimensions, or a reward is infinite.
    """
    table = _table(rewards)
    if np.isinf(table).any():
        bad = _checks.rows(np.isinf(table).any(1))
        raise ValueError(f"rewards must be finite, or NaN where unmeasured; {bad}: infinity")
    measured = ~np.isnan(table)
    counts = measured.sum(1)
    centre = float(table[measured].mean()) if measured.any() else 0.0
    order = np.argsort(~measured, axis=1, kind="stable")
    centred = np.where(measured, table - centre, 0.0)
    means = centred.sum(1) / np.maximum(counts, 1)
    deviations = np.where(measured, centred - means[:, None], 0.0)
    variances = (deviations**2).sum(1) / np.maximum(counts - 1, 1)
    return Tasks(
        np.take_along_axis(centred, order, 1),
        counts,
        means,
        variances,
        centre,
        np.arange(len(table)),
    )


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
