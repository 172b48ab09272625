"""What one training step says about its kernel baseline, for the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._effective_batch import LOWEST_TEMPERATURE
from advlib.diagnostics._features import unit_rows

ROWS_AT_ONCE = 512


class StepMetrics(NamedTuple):
    """One step's batch, one rollout a prompt, under the kernel and under the mean of the others.

    Attributes:
        residual_ratio: Σ (r - b_loo)² / Σ (r - b_kernel)², the effective batch as this one step
            shows it; average it over steps. NaN where the kernel leaves no residual.
        ess: effective number of neighbours, 1 / Σ_j p_ij², mean over samples.
        min_ess: its minimum.
        max_self_weight: largest weight of a sample in its own baseline; 0, as it must be.
        max_mutual_weight: largest p_ij p_ji. Two samples' contributions are correlated by it; near
            1 they are each other's baseline.
        zero_advantage_share: share of samples whose advantage is at most ``zero`` in size.
        mean_abs_shift: mean |b_kernel - b_loo|: how far the kernel departs from the plain mean.
        num_samples: valid samples.
    """

    residual_ratio: float
    ess: float
    min_ess: float
    max_self_weight: float
    max_mutual_weight: float
    zero_advantage_share: float
    mean_abs_shift: float
    num_samples: int


def step_metrics(
    features: Any,
    rewards: Any,
    *,
    temperature: float = 0.1,
    where: Any = None,
    zero: float = 1e-6,
) -> StepMetrics:
    """Metrics of one batch's kernel baseline, on the host, in memory that grows with B.

    Args:
        features: (B, D) prompt features, an array or a SciPy sparse matrix.
        rewards: (B,).
        temperature: T of the kernel.
        where: (B,) booleans; False where the reward is not a measurement.
        zero: an advantage of at most this size counts as zero.

    Returns:
        :class:`StepMetrics`.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: shapes differ, a valid reward is not finite, fewer than two samples are valid.
    """
    kernel = float(_checks.number("temperature", temperature, LOWEST_TEMPERATURE))
    values = _checks.as_numpy("rewards", rewards)
    if values.ndim != 1:
        raise ValueError(f"rewards must have one dimension, (B,); got shape {values.shape}")
    if values.dtype.kind not in "biuf" and values.dtype.name != "bfloat16":
        raise TypeError(f"rewards must be numbers; got dtype {values.dtype}")
    valid = np.ones(len(values), bool)
    if where is not None:
        valid = np.asarray(_checks.column("where", where, "bool"))
        _checks.same_length("rewards", len(values), "where", valid)
    values = values.astype(np.float64)
    _checks.finite_where("rewards", values, valid)
    if valid.sum() < 2:
        raise ValueError(f"two samples must be valid to be compared; got {int(valid.sum())}")
    units = unit_rows(features, len(values), "sample")[valid]
    values = values[valid]

    count = len(values)
    levels, advantages, neighbours, own = np.empty((4, count))
    for rows, logits in _tiles(units, kernel):
        top = logits.max(1, keepdims=True)
        weights = np.exp(logits - top)
        total = weights.sum(1, keepdims=True)
        weights /= total
        levels[rows] = (top + np.log(total))[:, 0]
        advantages[rows] = (weights * (values[rows, None] - values)).sum(1)
        own[rows] = weights[np.arange(len(rows)), rows]
        neighbours[rows] = 1 / np.square(weights).sum(1)
    mutual = max(
        float((2 * logits - levels[rows, None] - levels).max())
        for rows, logits in _tiles(units, kernel)
    )
    plain = (values - values.mean()) * count / (count - 1)
    left = float(np.square(advantages).sum())
    return StepMetrics(
        float(np.square(plain).sum()) / left if left > 0 else float("nan"),
        float(neighbours.mean()),
        float(neighbours.min()),
        float(own.max()),
        float(np.exp(mutual)),
        float((np.abs(advantages) <= zero).mean()),
        float(np.abs(advantages - plain).mean()),
        count,
    )


def _tiles(units: Any, temperature: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers and their cosines over T, -inf at the own column."""
    for start in range(0, units.shape[0], ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, units.shape[0]))
        product = units[rows] @ units.T
        logits = (product.toarray() if hasattr(product, "toarray") else product) / temperature
        logits[np.arange(len(rows)), rows] = -np.inf
        yield rows, logits
