"""Do alike prompts have alike rewards? Pairs of tasks, sampled where there are too many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

PAIRS = 20_000
BINS = 10
SHOWN = 300


class Pairs(NamedTuple):
    """Pairs of different tasks.

    Attributes:
        cosine: (P,) of their prompts.
        difference: (P,) absolute difference of their mean rewards.
        correlation: of the two, None where one of them does not vary.
        bins: cosine, mean difference, its standard error and the number of pairs, for pairs sorted
            by cosine and cut into parts of equal size.
    """

    cosine: np.ndarray
    difference: np.ndarray
    correlation: float | None
    bins: list[tuple[float, float, float, int]]


def draw(num_tasks: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of tasks, or ``PAIRS`` random ones where there are more."""
    if num_tasks * (num_tasks - 1) // 2 <= PAIRS:
        return np.triu_indices(num_tasks, 1)
    first = rng.integers(num_tasks, size=PAIRS)
    second = (first + rng.integers(1, num_tasks, size=PAIRS)) % num_tasks
    return first, second


def compare(features: Any, means: np.ndarray, drawn: tuple[np.ndarray, np.ndarray]) -> Pairs | None:
    """Cosines beside differences; None where there is no pair.

    Args:
        features: (N, D) array or SciPy sparse matrix.
        means: (N,) mean reward of each task.
        drawn: rows of the pairs, from :func:`draw`.
    """
    first, second = drawn
    if not len(first):
        return None
    cosine = _cosines(features, first, second)
    difference = np.abs(means[first] - means[second])
    varied = np.ptp(cosine) > 1e-12 and np.ptp(difference) > 1e-12
    correlation = float(np.corrcoef(cosine, difference)[0, 1]) if varied else None
    return Pairs(cosine, difference, correlation, _bins(cosine, difference))


def _cosines(features: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if hasattr(features, "tocsr"):
        rows = features.tocsr().astype(np.float64)
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        products = np.asarray(rows[first].multiply(rows[second]).sum(axis=1)).ravel()
    else:
        rows = np.asarray(features, np.float64)
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        products = np.empty(len(first))
        step = max(1, (1 << 22) // max(1, rows.shape[1]))
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            products[part] = np.einsum("pd,pd->p", rows[first[part]], rows[second[part]])
    lengths[lengths == 0] = 1.0  # a row of zeros has the cosine 0 to every other
    return np.clip(products / (lengths[first] * lengths[second]), -1.0, 1.0)


def _bins(cosine: np.ndarray, difference: np.ndarray) -> list[tuple[float, float, float, int]]:
    # Few different cosines, as of buckets, get a part each; else the parts are of equal size.
    different = np.unique(cosine)
    if len(different) > BINS:
        different = np.unique(np.quantile(cosine, np.linspace(0, 1, BINS + 1)))[:-1]
    part = np.searchsorted(different[1:], cosine, side="right")
    found = []
    for one in np.unique(part):
        values = difference[part == one]
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        found.append((float(cosine[part == one].mean()), float(values.mean()), error, len(values)))
    return found
