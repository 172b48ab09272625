"""Advantages relative to a mean, divided by a scale of the rewards: a deviation or the mean."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks
from advlib._batch import core
from advlib._checks import Values
from advlib._mesh import Axis
from advlib._segments import centred, segments
from advlib.estimators._relative import (
    Fallback,
    deviations,
    finish,
    grouped,
    others,
    over_mean,
    standard_deviation,
)


def grpo(
    rewards: Values,
    group_ids: Values,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    scale: Literal["group", "batch"] = "group",
    fallback: Fallback = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of its group, divided by a standard deviation.

        A_i = (r_i - mean_g) / (std_g + eps),    std_g² = Σ_{j ∈ g} (r_j - mean_g)² / (n_g - ddof)

    The division makes every group weigh alike, hard and easy prompts most of all: the gradient is
    no longer that of the expected reward. A constant group gives exact zeros.

    Args:
        rewards: (B,) rewards, in any unit.
        group_ids: (B,) integers in [0, num_groups).
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B.
        ddof: 1 for the sample standard deviation, 0 for the population's.
        eps: added to the standard deviation, in the unit of the rewards.
        scale: "group" divides by the group's standard deviation, "batch" by that of all valid
            rewards of the batch.
        fallback: as in :func:`group_mean`; the two batch baselines divide by the batch's std too.
        axis_name: as in :func:`group_mean`.

    Returns:
        (B,) advantages in standard deviations.

    Raises:
        TypeError, ValueError: as :func:`group_mean`; ``ddof`` is not 0 or 1; ``eps`` is negative.

    Source: Shao et al., "DeepSeekMath" (2024), section 4.1.
    """
    _checks.one_of("ddof", ddof, (0, 1))
    _checks.one_of("scale", scale, ("group", "batch"))
    eps = _checks.number("eps", eps, 0)
    batch = grouped(rewards, group_ids, where, num_groups, fallback, axis_name)
    return batch.run(_grpo, eps, fallback=fallback, ddof=ddof, scale=scale)


@core
def _grpo(
    ids: Array,
    where: Array | None,
    rewards: Array,
    eps: ArrayLike,
    *,
    num_groups: int,
    axes: Any,
    fallback: str,
    ddof: int,
    scale: str,
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    stats = centred(groups, rewards)
    std = standard_deviation(stats, ddof)
    if scale == "batch":
        everyone = groups.whole_batch()
        std = jnp.broadcast_to(standard_deviation(centred(everyone, rewards), ddof), std.shape)
    divisor = jnp.where(stats.constant, 1, std + eps)
    advantages = deviations(groups, stats) / groups.rows(divisor)
    advantages = jnp.where(groups.rows(stats.constant), 0, advantages)
    return finish(groups, stats, advantages, rewards, fallback, in_std=(eps, ddof))


def max_rl(
    rewards: Values,
    group_ids: Values,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    fallback: Fallback = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of its group, divided by that mean.

        A_i = (r_i - mean_g) / mean_g  where mean_g > 0,  else 0

    For 0/1 rewards the mean is the success rate p, and 1/p is what the gradient of log p asks for:
    rare successes weigh more.

    Args:
        rewards: (B,) rewards, in any unit; meant for rewards that are not negative.
        group_ids: (B,) integers in [0, num_groups).
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B.
        fallback: as in :func:`group_mean`; the two batch baselines divide by themselves too.
        axis_name: as in :func:`group_mean`.

    Returns:
        (B,) advantages, without unit.

    Raises:
        TypeError, ValueError: as :func:`group_mean`.

    Source: "Maximum Likelihood Reinforcement Learning" (MaxRL, 2026).
    """
    batch = grouped(rewards, group_ids, where, num_groups, fallback, axis_name)
    return batch.run(_max_rl, fallback=fallback)


@core
def _max_rl(
    ids: Array, where: Array | None, rewards: Array, *, num_groups: int, axes: Any, fallback: str
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    stats = centred(groups, rewards)
    advantages = over_mean(deviations(groups, stats), groups.rows(stats.mean))
    return finish(groups, stats, advantages, rewards, fallback, in_mean=True)


@core
def leave_one_out_normalized(
    ids: Array,
    where: Array | None,
    rewards: Array,
    eps: ArrayLike,
    *,
    num_groups: int,
    axes: Any,
    fallback: str,
    ddof: int,
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    stats = centred(groups, rewards)
    count = groups.rows(stats.num_valid)
    deviation = stats.deviation
    # Taking i out of the sum of squares cancels badly where i holds most of it, and at most one row
    # of a group does: the farthest one. Its peers are summed afresh.
    far = jnp.abs(deviation) >= groups.rows(groups.max(jnp.abs(deviation)))
    lone_far = far & (groups.rows(groups.sum(far.astype(deviation.dtype))) == 1)
    near = centred(groups.only(~lone_far), rewards)
    near_squares = near.square_sum * (near.scale / stats.scale) ** 2
    near_squares = jnp.where(near.constant, 0, near_squares)
    taken_out = groups.rows(stats.square_sum) - deviation**2 * groups.rows(others(stats.num_valid))
    squares = jnp.where(lone_far, groups.rows(near_squares), taken_out)
    # Peers are all equal exactly where the only row that differs is i itself.
    equal_peers = groups.rows(stats.constant) | (lone_far & groups.rows(near.constant))
    divided = ~equal_peers & (count > 2) & groups.valid
    variance = jnp.where(divided, squares, 1) / jnp.where(divided, count - 1 - ddof, 1)
    std = groups.rows(stats.scale) * jnp.sqrt(variance)
    advantages = deviations(groups, stats) * groups.rows(others(stats.num_valid))
    advantages = jnp.where(divided, advantages / jnp.where(divided, std + eps, 1), advantages)
    return finish(groups, stats, advantages, rewards, fallback, in_std=(eps, ddof))
