"""Is a prompt kernel worth it on these tasks? The effective batch, before any training.

A sample's contribution to the policy gradient has second moment F (σ² + MSE_b), where σ² is the
variance of the reward at a fixed prompt, MSE_b = E(b - μ)² the error of the baseline and F that of
the score. Batch B with the kernel is as noisy as batch

    B (σ² + MSE_loo) / (σ² + MSE_kernel)

with the mean of the others. The ratio is estimated from rewards of a fixed policy, several a task.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._features import unit_rows
from advlib.diagnostics._score import Method, draw, score
from advlib.diagnostics._spread import log_ratio_spread
from advlib.diagnostics._tasks import read_tasks

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
    count, size = _whole("num_resamples", num_resamples), _whole("batch_size", batch_size)
    needed = 1 if method == "residual" else 2
    tasks = read_tasks(rewards, needed)
    if len(tasks.counts) < size:
        few = " with two or more measured rollouts" if needed == 2 else ""
        hint = '; method="residual" needs one a task' if needed == 2 else ""
        raise ValueError(
            f"batch_size must be at most the number of tasks{few}, {len(tasks.counts)} of "
            f"{tasks.num_given}; got {size}{hint}"
        )
    units = unit_rows(features, tasks.num_given)[tasks.rows]
    rng = np.random.default_rng(seed)
    batches = draw(len(tasks.counts), size, count, rng)
    # An infinite temperature is the mean of the others.
    plain, *scored = score(tasks, units, batches, [np.inf, *kernels], method, rng)

    twice = tasks.counts >= 2
    sigma2 = float(tasks.variances[twice].mean()) if twice.any() else float("nan")
    # The residual of a single rollout holds σ² already.
    own = np.zeros(len(tasks.counts)) if method == "residual" else tasks.variances
    held = sigma2 if method == "residual" else 0.0
    results = []
    for kernel, scores in zip(kernels, scored, strict=True):
        loo, mse = float(plain.errors.mean()), float(scores.errors.mean())
        spread = log_ratio_spread(
            batches,
            (plain.errors, scores.errors),
            (plain.gains, scores.gains),
            own,
            confidence,
            np.random.default_rng([seed, 1]),
        )
        deciles = np.quantile(scores.neighbours, np.linspace(0, 1, 11))
        results.append(
            EffectiveBatch(
                ratio=effective_batch_ratio(float(own.mean()), loo, mse),
                interval=spread.interval,
                sigma2=sigma2,
                mse_loo=loo - held,
                mse_kernel=mse - held,
                ess=float(scores.neighbours.mean()),
                ess_deciles=tuple(deciles.tolist()),
                temperature=float(kernel),
                batch_size=size,
                num_tasks=len(tasks.counts),
                num_left_out=tasks.num_given - len(tasks.counts),
                num_rollouts=int(tasks.counts.sum()),
                num_resamples=count,
                method=method,
                confidence=confidence,
                log_error=spread.tasks,
                draw_error=spread.draws,
            )
        )
    return tuple(results)


def _whole(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {type(value).__name__}") from None
    if count < 2:
        raise ValueError(f"{name} must be at least 2; got {count}")
    return count
