"""The kernel baseline on the host, over distinct rows: float32 where it suffices, else float64.

Samples with equal features have equal weights for everybody else, so their weights and rewards are
added first and the pairs are those of distinct rows. What a sample owes to the other members of its
own row is added at the end from sums that it is not in: nothing is ever subtracted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from advlib.estimators._kernel_rows import TILE, Products, UnitRows, shares

# exp(cos/T) of float32 neither overflows nor vanishes there, so rows need no maximum.
WARM = 0.05
LOWEST = -1e300


class Means(NamedTuple):
    """Per sample: b_i = reference + mean.

    Attributes:
        reference: (B,) the reward of another sample.
        mean: (B,) the weighted mean of r_j - reference over j ≠ i.
        alone: (B,) bool, no j has any weight; mean is 0 there.
    """

    reference: np.ndarray
    mean: np.ndarray
    alone: np.ndarray


class _Sums(NamedTuple):
    """Σ_j exp(l_ij - top_i) · (1, r_j - c, r_j - c'), by distinct row."""

    top: np.ndarray
    total: np.ndarray


def kernel_means(
    unit: UnitRows,
    rewards: np.ndarray,
    weights: np.ndarray,
    temperature: float,
    *,
    exact: bool = False,
) -> Means:
    """Weighted means of the other rewards.

    Args:
        unit: the features.
        rewards: (B,) finite where the weight is positive.
        weights: (B,) at least 0; 0 for a masked sample.
        temperature: positive, or inf.
        exact: float64 throughout.
    """
    size = len(rewards)
    voters = np.flatnonzero(weights > 0)
    if not voters.size:
        return Means(np.zeros(size), np.zeros(size), np.ones(size, bool))
    rewards = np.where(weights > 0, rewards, 0).astype(np.float64)
    weights = weights.astype(np.float64) / weights.max()
    first, second = voters[0], voters[min(1, len(voters) - 1)]
    # One's own reward must not be what one is measured from, hence two references.
    references = rewards[[first, second]]
    columns = np.column_stack([weights, *(weights * (rewards - c) for c in references)])
    which = np.zeros(size, int)
    which[first] = 1

    group = unit.group
    if group is None:
        per_row = columns
    else:
        per_row = np.column_stack([np.bincount(group, c, unit.size) for c in columns.T])
    beta = 1.0 / temperature
    mild = weights[voters].min() > 1e-6
    if unit.size <= TILE or temperature < WARM or exact or not mild:
        sums = _by_rows(Products(unit.rows, beta, np.float64), per_row)
    else:
        sums = _by_halves(Products(unit.rows, beta, np.float32), per_row)

    if group is None:
        weight, value = sums.total[:, 0], sums.total[np.arange(size), 1 + which]
    else:
        weight, value = _with_own_row(sums, columns, group, which, beta * unit.nonzero)
    alone = weight == 0
    mean = np.where(alone, 0, value / np.where(alone, 1, weight))
    return Means(references[which], mean, alone)


def few_means(
    cosines: np.ndarray, rewards: np.ndarray, weights: np.ndarray | None, temperature: float
) -> Means:
    """As :func:`kernel_means`, where all pairs fit one small matrix, which is overwritten.

    Args:
        cosines: (B, B).
        rewards: (B,) finite where the weight is positive.
        weights: (B,) at least 0; None for 1 each.
        temperature: positive, or inf.
    """
    size = len(rewards)
    logits = cosines
    logits *= 1.0 / temperature
    if weights is not None:
        rewards = np.where(weights > 0, rewards, 0)
        with np.errstate(divide="ignore"):
            logits += np.log(weights)
    np.fill_diagonal(logits, -np.inf)
    top = logits.max(axis=1, initial=-1e30)  # finite in float32
    logits -= top[:, None]
    e = np.exp(logits, out=logits)
    total = e.sum(axis=1)
    alone = total == 0
    total[alone] = 1
    voters = range(size) if weights is None else np.flatnonzero(weights > 0)
    reference = np.zeros(size)
    if not len(voters):
        return Means(reference, reference, alone)
    first, second = voters[0], voters[min(1, len(voters) - 1)]
    reference += rewards[first]
    reference[first] = rewards[second]
    value = e @ (rewards - rewards[first])
    value[first] = e[first] @ (rewards - rewards[second])
    return Means(reference, value / total, alone)


def _with_own_row(
    sums: _Sums, columns: np.ndarray, group: np.ndarray, which: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Add the other members of each sample's own row, of similarity `own`."""
    others = others_in_group(columns, group)
    weight = others[:, 0]
    value = np.where(which == 0, others[:, 1], others[:, 2])
    have = weight > 0
    logit = np.where(have, own[group] + np.log(np.where(have, weight, 1)), LOWEST)
    scale = np.where(have, 1 / np.where(have, weight, 1), 0)
    top = np.maximum(sums.top[group], logit)
    inside, outside = np.exp(logit - top) * have, np.exp(sums.top[group] - top)
    rest = sums.total[group]
    total = outside * rest[:, 0] + inside
    return total, outside * rest[np.arange(len(group)), 1 + which] + inside * scale * value


def others_in_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """(B, k) sums over the other members of each one's group, as before plus after.

    Subtracting one's own value from the group's sum would leave its rounding behind.
    """
    counts = np.bincount(group)
    order = np.argsort(group, kind="stable")
    ordered = values[order]
    ends = np.cumsum(counts)
    starts = ends - counts
    before, after = np.zeros_like(ordered), np.zeros_like(ordered)
    large = counts > 64
    for start, end in zip(starts[large], ends[large], strict=True):
        before[start + 1 : end] = np.cumsum(ordered[start : end - 1], axis=0)
        after[start : end - 1] = np.cumsum(ordered[start + 1 : end][::-1], axis=0)[::-1]
    for step in range(1, int(counts[~large].max(initial=0))):
        there = ~large & (counts > step)
        right, left = starts[there] + step, ends[there] - 1 - step
        before[right] = before[right - 1] + ordered[right - 1]
        after[left] = after[left + 1] + ordered[left + 1]
    result = np.empty_like(ordered)
    result[order] = before + after
    return result


def _by_rows(products: Products, columns: np.ndarray) -> _Sums:
    """Any temperature and weights: float64, a running maximum by row, all pairs."""
    voting = columns[:, :1] > 0
    values = np.where(voting, columns / np.where(voting, columns[:, :1], 1), 0)
    plain = bool((columns[:, 0] == 1).all())
    with np.errstate(divide="ignore"):
        log_weights = np.log(columns[:, 0])
    top = np.full(products.size, LOWEST)
    total = np.zeros_like(values)
    tiles = products.tiles

    def work(mine: list[int]) -> None:
        for c in range(len(tiles)):
            block = products.with_columns(c)
            for r in mine:
                rows = tiles[r]
                logits = block(r)
                if not plain:
                    logits += log_weights[tiles[c]]
                if r == c:
                    np.fill_diagonal(logits, -np.inf)
                raised = np.maximum(top[rows], logits.max(axis=1))
                logits -= raised[:, None]
                np.exp(logits, out=logits)
                kept = np.exp(top[rows] - raised)
                total[rows] = total[rows] * kept[:, None] + logits @ values[tiles[c]]
                top[rows] = raised

    _in_threads(len(tiles), lambda _, mine: work(mine))
    return _Sums(top, total)


def _by_halves(products: Products, columns: np.ndarray) -> _Sums:
    """High temperature: float32, no maximum, and each pair of tiles once, for both."""
    values = columns.astype(np.float32)
    tiles = products.tiles
    totals: dict[int, np.ndarray] = {}

    def work(thread: int, mine: list[int]) -> None:
        total = totals[thread] = np.zeros_like(columns)
        for c in mine:
            block, there = products.with_columns(c), tiles[c]
            for r in range(c + 1):
                weights = block(r)
                np.exp(weights, out=weights)
                if r == c:
                    np.fill_diagonal(weights, 0)
                else:
                    total[there] += weights.T @ values[tiles[r]]
                total[tiles[r]] += weights @ values[there]

    _in_threads(len(tiles), work)
    total = sum(totals[thread] for thread in sorted(totals))
    return _Sums(np.zeros(products.size), np.asarray(total))


def _in_threads(num_tiles: int, work: Callable[[int, list[int]], None]) -> None:
    """Give each processor its tiles, always the same ones: sums must not depend on timing."""
    if num_tiles < 3:
        work(0, list(range(num_tiles)))
        return
    parts = list(shares(num_tiles, min(processors(), num_tiles)))
    with _one_blas_thread(), ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(work, i, part) for i, part in enumerate(parts)]:
            done.result()


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one_blas_thread() -> Any:
    """Threads of our own and of the matrix library would fight over the processors."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")
