"""How sure a ratio is that averages over random batches of the tasks at hand.

Tasks are the sample: other tasks of the same kind would give another ratio. Bootstrapping by
drawing batches anew from tasks drawn with replacement would be slow, and wrong besides: a task that
was drawn twice would be a perfect neighbour of itself, and keeping it out leaves fewer tasks to
choose from. Here a task that is drawn twice pulls twice at the estimate, and stands in no batch
that was not drawn before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

REPLICATES = 2000
CELLS_AT_ONCE = 1 << 20


class Spread(NamedTuple):
    """How far a ratio may be off.

    Attributes:
        interval: bounds of the ratio; NaN where numerator or denominator is not positive.
        tasks: standard error of its logarithm, from the choice of tasks.
        draws: standard error of its logarithm, from the number of batches drawn.
    """

    interval: tuple[float, float]
    tasks: float
    draws: float


class Pulls(NamedTuple):
    """What tasks do to a mean over batches.

    Attributes:
        mean: (N,) the pull of each task: how much the sum over a batch grows by having it, on
            average over the batches that were drawn with it; minus the mean over tasks.
        noise: (N,) variance of ``mean`` from the choice of batches; NaN where it is not known.
    """

    mean: np.ndarray
    noise: np.ndarray


def pulls(batches: np.ndarray, gains: np.ndarray, own: np.ndarray) -> Pulls:
    """Average what the tasks of each batch add to its sum.

    To first order an average over batches of B tasks moves by the mean pull of the tasks when
    these weigh more: with each batch a plain sum of numbers of its own, a task's pull is its number
    minus the mean.

    Args:
        batches: (M, B) tasks of each batch.
        gains: (M, B) sum over the batch minus the sum over it without that task.
        own: (N,) a term of the task itself, the same in every batch.
    """
    num_tasks = len(own)
    flat, values = batches.ravel(), gains.ravel()
    seen = np.bincount(flat, minlength=num_tasks)
    mean = np.bincount(flat, weights=values, minlength=num_tasks) / np.maximum(seen, 1)
    squares = np.bincount(flat, weights=(values - mean[flat]) ** 2, minlength=num_tasks)
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.where(seen > 1, squares / (seen - 1) / seen, np.nan)
    mean = np.where(seen > 0, mean + own, np.nan)
    return Pulls(mean - np.nanmean(mean), noise)


def log_ratio_spread(
    batches: np.ndarray,
    values: tuple[np.ndarray, np.ndarray],
    gains: tuple[np.ndarray, np.ndarray],
    own: np.ndarray,
    confidence: float,
    rng: np.random.Generator,
) -> Spread:
    """Bootstrap over tasks of the logarithm of a ratio of two means over batches.

    Args:
        batches: (M, B) tasks of each batch.
        values: (M,) each, numerator and denominator by batch.
        gains: (M, B) each, what each task adds to the sum over its batch.
        own: (N,) a term by task that both have beside it; zeros for none.
        confidence: such as 0.95.
        rng: draws the replicates.
    """
    extra = own.mean()
    top, bottom = (value.mean() + extra for value in values)
    if min(top, bottom) <= 0:
        return Spread((np.nan, np.nan), np.nan, np.nan)
    above, below = (pulls(batches, gain, own).mean for gain in gains)
    # Batches are finitely many, which makes the tasks look more different than they are.
    linear = pulls(batches, gains[0] / top - gains[1] / bottom, own * (1 / top - 1 / bottom))
    known = ~np.isnan(above)
    seen = float(np.square(linear.mean[known]).mean())
    noise = float(np.nanmean(linear.noise)) if np.isfinite(linear.noise).any() else 0.0
    num_tasks = len(own)
    kept = max(0.0, 1 - noise / seen) if seen > 0 else 0.0
    tasks = np.sqrt(kept * seen / (num_tasks - 1))
    difference = values[0] / top - values[1] / bottom
    draws = difference.std(ddof=1) / np.sqrt(len(batches))

    tail = (1 - confidence) / 2
    scale = np.sqrt(kept * num_tasks / (num_tasks - 1)) * _few(num_tasks, tail)
    above, below = scale * above[known], scale * below[known]
    logs = []
    step = max(1, CELLS_AT_ONCE // num_tasks)
    for start in range(0, REPLICATES, step):
        count = min(step, REPLICATES - start)
        drawn = rng.integers(len(above), size=(count, num_tasks))
        with np.errstate(invalid="ignore", divide="ignore"):
            high, low = top + above[drawn].mean(1), bottom + below[drawn].mean(1)
            logs.append(np.log(high) - np.log(low))
    replicates = np.concatenate(logs) + draws * rng.standard_normal(REPLICATES)
    bounds = np.exp(np.nanquantile(replicates, [tail, 1 - tail]))
    return Spread((float(bounds[0]), float(bounds[1])), float(tasks), float(draws))


def _few(num_tasks: int, tail: float) -> float:
    """How much wider an interval must be because its width was estimated: Student over normal."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(num_tasks - 1, 1 - tail) / ndtri(1 - tail))
