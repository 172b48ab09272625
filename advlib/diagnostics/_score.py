"""Baselines scored on random batches of the tasks at hand."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from advlib.diagnostics._features import batches_at_once, cosines, neighbour_weights
from advlib.diagnostics._tasks import Tasks

Method = Literal["rao_blackwell", "resampling", "residual"]


def draw(num_tasks: int, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(M, B) batches of different tasks, cut from shuffles so that all tasks come equally often."""
    each = num_tasks // size
    decks = np.broadcast_to(np.arange(num_tasks), (-(-count // each), num_tasks))
    return rng.permuted(decks, axis=1)[:, : each * size].reshape(-1, size)[:count]


class Score(NamedTuple):
    """How well a baseline does: (M,) mean error, (M, B) gains of tasks and effective neighbours."""

    errors: np.ndarray
    gains: np.ndarray
    neighbours: np.ndarray


def score(
    tasks: Tasks,
    units: Any,
    batches: np.ndarray,
    kernels: list[float],
    method: Method,
    rng: np.random.Generator,
) -> list[Score]:
    """Score the baseline of each temperature on the same batches.

    Args:
        tasks: N tasks.
        units: (N, D) from ``unit_rows``.
        batches: (M, B) tasks of each batch.
        kernels: temperatures.
        method: how to estimate an error.
        rng: chooses the rollouts, where the method takes single ones.
    """
    count, size = batches.shape
    views = _views(tasks, batches, method, rng)
    scores = [
        Score(np.empty(count), np.empty((count, size)), np.empty((count, size))) for _ in kernels
    ]
    step = batches_at_once(units, size)
    for start in range(0, count, step):
        part = slice(start, start + step)
        cosine = cosines(units, batches[part])
        for kernel, whole in zip(kernels, scores, strict=True):
            # At an infinite temperature one matrix serves every batch.
            weights = neighbour_weights(cosine[:1] if np.isinf(kernel) else cosine, kernel)
            found = _batch_errors(weights, *(view[part] for view in views))
            for target, piece in zip(whole, found, strict=True):
                target[part] = piece
    return scores


def _batch_errors(
    weights: np.ndarray,
    seen: np.ndarray,
    target: np.ndarray,
    floor: np.ndarray,
    noise: np.ndarray,
) -> Score:
    """Errors (target - Σ p seen)² - floor + Σ p² noise, and what they are without each task."""
    squares = weights**2
    off = target - (weights @ seen[..., None])[..., 0]
    spread = (squares @ noise[..., None])[..., 0]
    errors = off**2 - floor + spread
    # Without task t the weights of row i are p / (1 - p_it), and its error + floor is
    # ((off + p (seen_t - target))² + spread - p² noise_t) / (1 - p_it)²: multiplied out, sums over
    # i are products with three matrices.
    inverse = 1 - weights
    alone = inverse < 1e-8
    inverse[alone] = np.inf  # nothing is left to compare with but the mean of all tasks, 0
    inverse **= -2
    first = _sums(inverse, off**2 + spread)
    inverse *= weights
    slope, level = _sums(inverse, off), _sums(inverse, off * target)
    inverse *= weights
    curve, tilt, base = (_sums(inverse, column) for column in (target**0, target, target**2))
    without = first + 2 * (seen * slope - level) + (seen**2 - noise) * curve - 2 * seen * tilt
    without += base
    if alone.any():
        without += _sums(alone, target**2)
    gains = errors + (errors + floor).sum(1, keepdims=True) - without
    return Score(errors.mean(1), gains, 1 / squares.sum(2))


def _sums(matrices: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Σ_i column_i matrix_it for each batch, (C, B)."""
    return (column[:, None] @ matrices)[:, 0]


def _views(
    tasks: Tasks, batches: np.ndarray, method: Method, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(M, B) each: what neighbours show, what is predicted, its variance, the neighbours' missing.

    The error is (target - Σ p seen)² - floor + Σ p² noise.
    """
    mean, variance, count = tasks.means[batches], tasks.variances[batches], tasks.counts[batches]
    zero = np.zeros(batches.shape)
    if method == "rao_blackwell":
        return mean, mean, variance / count, variance * (1 - 1 / count)
    one = tasks.rewards[batches, rng.integers(count)]
    if method == "residual":
        return one, one, zero, zero
    others = (count * mean - one) / (count - 1)
    return one, others, variance / (count - 1), zero
