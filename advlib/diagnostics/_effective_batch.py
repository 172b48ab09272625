"""Is a prompt kernel worth it on these tasks? The effective batch, before any training.

A sample's contribution to the policy gradient has second moment F (σ² + MSE_b), where σ² is the
variance of the reward at a fixed prompt, MSE_b = E(b - μ)² the error of the baseline and F that of
the score. Batch B with the kernel is as noisy as batch

    B (σ² + MSE_loo) / (σ² + MSE_kernel)

with the mean of the others. The ratio is estimated from rewards of a fixed policy, several a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._features import batches_at_once, cosines, neighbour_weights, unit_rows
from advlib.diagnostics._spread import log_ratio_spread
from advlib.diagnostics._tasks import Tasks, read_tasks

Method = Literal["rao_blackwell", "resampling", "residual"]
LOWEST_TEMPERATURE = 1e-4


class EffectiveBatch(NamedTuple):
    """The effective batch of a kernel baseline, relative to the mean of the others.

    Attributes:
        ratio: (σ² + MSE_loo) / (σ² + MSE_kernel); above 1 the kernel acts like a larger batch.
        interval: bounds of the ratio for other tasks of the same kind; NaN where numerator or
            denominator is not positive.
        sigma2: σ², variance of the reward at a fixed task, in squared reward units; NaN where no
            task has two rollouts.
        mse_loo: squared error of the mean of the others as a prediction of the task's mean reward.
        mse_kernel: the same for the kernel baseline. Neither is clipped: by chance they can be
            negative.
        ess: effective number of neighbours of the kernel, 1 / Σ_j p_ij², mean over rows; at most
            ``batch_size - 1``.
        ess_deciles: its minimum, nine deciles and maximum.
        temperature: T of the kernel.
        batch_size: B.
        num_tasks: tasks used.
        num_left_out: tasks of the table with too few measured rollouts.
        num_rollouts: measured rollouts of the tasks used.
        num_resamples: batches drawn.
        method: how it was estimated.
        confidence: of the interval.
        log_error: standard error of log(ratio), from the choice of tasks.
        draw_error: standard error of log(ratio) that more resamples would remove.
    """

    ratio: float
    interval: tuple[float, float]
    sigma2: float
    mse_loo: float
    mse_kernel: float
    ess: float
    ess_deciles: tuple[float, ...]
    temperature: float
    batch_size: int
    num_tasks: int
    num_left_out: int
    num_rollouts: int
    num_resamples: int
    method: Method
    confidence: float
    log_error: float
    draw_error: float


def effective_batch_ratio(sigma2: float, mse_loo: float, mse_kernel: float) -> float:
    """The effective batch from its three terms.

        (σ² + MSE_loo) / (σ² + MSE_kernel)

    Args:
        sigma2: variance of the reward at a fixed task.
        mse_loo: squared error of the mean of the others.
        mse_kernel: squared error of the kernel baseline, in the same unit.

    Returns:
        The ratio; NaN where the denominator is not positive.
    """
    bottom = sigma2 + mse_kernel
    return (sigma2 + mse_loo) / bottom if bottom > 0 else float("nan")


def effective_batch(
    rewards: Any,
    features: Any,
    *,
    temperature: float = 0.1,
    batch_size: int = 32,
    num_resamples: int = 2000,
    seed: int = 0,
    method: Method = "rao_blackwell",
    confidence: float = 0.95,
) -> EffectiveBatch:
    """How large a batch the kernel baseline is worth, relative to the mean of the others.

        ratio = (σ² + MSE_loo) / (σ² + MSE_kernel)

    Batches of B different tasks are drawn from the table, and both baselines see the same ones.
    With p_ij the weights of a batch, m the tasks' mean rewards, v their sample variances and n
    their rollouts, the error of task i's baseline is estimated without bias by

        rao_blackwell   (Σ_j p_ij m_j - m_i)² - v_i / n_i + Σ_j p_ij² v_j (1 - 1/n_j)
        resampling      (y_i - Σ_j p_ij x_j)² - v_i / (n_i - 1)
        residual        (x_i - Σ_j p_ij x_j)² - σ²

    where x is one rollout a task, drawn, and y_i the mean of the task's other rollouts. The first
    needs two rollouts a task and has the least noise. The last needs no second rollout for the
    ratio. All three estimate the same number. Tasks with fewer rollouts than that are left out.

    Args:
        rewards: (tasks, rollouts) rewards of one policy, in any unit; NaN or None where there is no
            measurement. Rows may differ in length.
        features: (tasks, D) prompt features, an array or a SciPy sparse matrix; rows are brought to
            length one here, and a row of zeros has cosine 0 to every other.
        temperature: T of the kernel, from 1e-4 to infinity.
        batch_size: B of the training step that is asked about, one rollout a task.
        num_resamples: batches drawn.
        seed: of the draws; equal seeds draw equal batches, for any features and temperature.
        method: see above.
        confidence: of the interval, from a bootstrap over tasks.

    Returns:
        An :class:`EffectiveBatch`.

    Raises:
        TypeError: rewards or features are no numbers.
        ValueError: shapes do not fit; fewer usable tasks than ``batch_size``; an option is out of
            range; an infinite reward.

    Source: the second-moment argument of Greensmith et al., "Variance reduction techniques for
    gradient estimates in reinforcement learning", JMLR 2004, for a score that is uncorrelated with
    the reward's error.
    """
    return effective_batch_by_temperature(
        rewards,
        features,
        temperatures=(temperature,),
        batch_size=batch_size,
        num_resamples=num_resamples,
        seed=seed,
        method=method,
        confidence=confidence,
    )[0]


def effective_batch_by_temperature(
    rewards: Any,
    features: Any,
    *,
    temperatures: Sequence[float],
    batch_size: int = 32,
    num_resamples: int = 2000,
    seed: int = 0,
    method: Method = "rao_blackwell",
    confidence: float = 0.95,
) -> tuple[EffectiveBatch, ...]:
    """As :func:`effective_batch`, for several temperatures on the same batches, in one pass.

    A temperature that is chosen for its ratio here is chosen on these tasks: its ratio is too high
    by selection, and other tasks say by how much.

    Args:
        rewards: (tasks, rollouts).
        features: (tasks, D).
        temperatures: one T or more.
        batch_size: B.
        num_resamples: batches drawn.
        seed: of the draws.
        method: how to estimate.
        confidence: of the intervals.

    Returns:
        One :class:`EffectiveBatch` for each temperature, in their order.

    Raises:
        TypeError: see :func:`effective_batch`.
        ValueError: see :func:`effective_batch`.
    """
    _checks.one_of("method", method, ("rao_blackwell", "resampling", "residual"))
    if not len(temperatures):
        raise ValueError("temperatures must hold at least one number")
    kernels = [_checks.number("temperature", t, LOWEST_TEMPERATURE) for t in temperatures]
    _checks.number("confidence", confidence, 0.5, 0.9999)
    _checks.number("num_resamples", num_resamples, 2)
    _checks.number("batch_size", batch_size, 2)
    needed = 1 if method == "residual" else 2
    tasks = read_tasks(rewards, needed)
    if len(tasks.counts) < batch_size:
        few = " with two or more measured rollouts" if needed == 2 else ""
        hint = '; method="residual" needs one a task' if needed == 2 else ""
        raise ValueError(
            f"batch_size must be at most the number of tasks{few}, {len(tasks.counts)} of "
            f"{tasks.num_given}; got {batch_size}{hint}"
        )
    units = unit_rows(features, tasks.num_given)[tasks.rows]
    rng = np.random.default_rng(seed)
    batches = _draw(len(tasks.counts), int(batch_size), int(num_resamples), rng)
    # An infinite temperature is the mean of the others.
    plain, *scored = _score(tasks, units, batches, [np.inf, *kernels], method, rng)

    twice = tasks.counts >= 2
    sigma2 = float(tasks.variances[twice].mean()) if twice.any() else float("nan")
    # The residual of a single rollout holds σ² already.
    own = np.zeros(len(tasks.counts)) if method == "residual" else tasks.variances
    held = sigma2 if method == "residual" else 0.0
    results = []
    for kernel, score in zip(kernels, scored, strict=True):
        loo, mse = float(plain.errors.mean()), float(score.errors.mean())
        spread = log_ratio_spread(
            batches,
            (plain.errors, score.errors),
            (plain.gains, score.gains),
            own,
            confidence,
            np.random.default_rng([seed, 1]),
        )
        deciles = np.quantile(score.neighbours, np.linspace(0, 1, 11))
        results.append(
            EffectiveBatch(
                ratio=effective_batch_ratio(float(own.mean()), loo, mse),
                interval=spread.interval,
                sigma2=sigma2,
                mse_loo=loo - held,
                mse_kernel=mse - held,
                ess=float(score.neighbours.mean()),
                ess_deciles=tuple(deciles.tolist()),
                temperature=float(kernel),
                batch_size=int(batch_size),
                num_tasks=len(tasks.counts),
                num_left_out=tasks.num_given - len(tasks.counts),
                num_rollouts=int(tasks.counts.sum()),
                num_resamples=int(num_resamples),
                method=method,
                confidence=confidence,
                log_error=spread.tasks,
                draw_error=spread.draws,
            )
        )
    return tuple(results)


def _draw(num_tasks: int, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(M, B) batches of different tasks, cut from shuffles so that all tasks come equally often."""
    each = num_tasks // size
    decks = np.broadcast_to(np.arange(num_tasks), (-(-count // each), num_tasks))
    return rng.permuted(decks, axis=1)[:, : each * size].reshape(-1, size)[:count]


class _Score(NamedTuple):
    """How well a baseline does: (M,) mean error, (M, B) gains of tasks and effective neighbours."""

    errors: np.ndarray
    gains: np.ndarray
    neighbours: np.ndarray


def _score(
    tasks: Tasks,
    units: Any,
    batches: np.ndarray,
    kernels: list[float],
    method: Method,
    rng: np.random.Generator,
) -> list[_Score]:
    count, size = batches.shape
    views = _views(tasks, batches, method, rng)
    scores = [
        _Score(np.empty(count), np.empty((count, size)), np.empty((count, size))) for _ in kernels
    ]
    step = batches_at_once(units, size)
    for start in range(0, count, step):
        part = slice(start, start + step)
        cosine = cosines(units, batches[part])
        for kernel, score in zip(kernels, scores, strict=True):
            # At an infinite temperature one matrix serves every batch.
            weights = neighbour_weights(cosine[:1] if np.isinf(kernel) else cosine, kernel)
            found = _batch_errors(weights, *(view[part] for view in views))
            for whole, piece in zip(score, found, strict=True):
                whole[part] = piece
    return scores


def _batch_errors(
    weights: np.ndarray,
    seen: np.ndarray,
    target: np.ndarray,
    floor: np.ndarray,
    noise: np.ndarray,
) -> _Score:
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
    return _Score(errors.mean(1), gains, 1 / squares.sum(2))


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
