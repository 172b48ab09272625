"""Advantages relative to a mean of other rewards.

All of these are one idea. With w a weight that depends on who was sampled and never on the rewards,

    A_i = s · (r_i - Σ_j w_ij r_j),

and an estimator is its choice of w (the group, the group without i, the batch) and of the scale s
(1, n/(n-1), 1/std, 1/mean). The deviations are computed once, in ``advlib._segments.centred``.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from advlib import _checks
from advlib._batch import GROUPS, core, flat_batch
from advlib._checks import Values
from advlib._mesh import Axis
from advlib._segments import centred, segments, spread
from advlib.estimators._relative import (
    Fallback,
    deviations,
    finish,
    grouped,
    others,
    ungrouped,
)
from advlib.estimators._scaled import leave_one_out_normalized


def group_mean(
    rewards: Values,
    group_ids: Values,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    fallback: Fallback = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of its group.

        A_i = r_i - (1/n_g) Σ_{j ∈ g} r_j

    over the valid samples j of i's group g. The sample is in its own baseline, so the policy
    gradient is that of :func:`leave_one_out` times (n_g - 1)/n_g: small groups weigh less.

    Args:
        rewards: (B,) rewards, in any unit.
        group_ids: (B,) integers in [0, num_groups), in any order; groups may differ in size.
        where: (B,) booleans; False where the reward is not a measurement. Such a sample is in no
            statistic and its advantage is exactly 0, whatever stands in its reward slot.
        num_groups: number of groups, static. Default: B.
        fallback: the advantage of a sample that is alone in its group: "zero"; "raw", the reward
            itself; or the reward minus the mean of the whole batch, with the sample in it
            ("batch_mean") or without ("batch_leave_one_out").
        axis_name: mesh axes over which the batch is split inside ``shard_map``. Default: all axes
            that the inputs vary over, so that groups may span devices; ``()`` keeps to the shard.

    Returns:
        (B,) advantages in the unit of the rewards, float32 (float64 for float64 input under x64).

    Raises:
        TypeError: a dtype is wrong, ``num_groups`` is not a Python integer.
        ValueError: shapes differ; in host arrays, an id is out of range or a valid reward is not
            finite. Out-of-range ids in device arrays count as ``where=False``.

    Source: GRPO without the division by the standard deviation, called Dr. GRPO by Liu et al.,
    "Understanding R1-Zero-Like Training" (2025).
    """
    batch = grouped(rewards, group_ids, where, num_groups, fallback, axis_name)
    return batch.run(_group_mean, fallback=fallback)


@core
def _group_mean(
    ids: Array, where: Array | None, rewards: Array, *, num_groups: int, axes: Any, fallback: str
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    stats = centred(groups, rewards)
    return finish(groups, stats, deviations(groups, stats), rewards, fallback)


def leave_one_out(
    rewards: Values,
    group_ids: Values,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    normalize: bool = False,
    ddof: int = 1,
    eps: float = 1e-6,
    fallback: Fallback = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of the other samples of its group (RLOO).

        A_i = r_i - (1/(n_g - 1)) Σ_{j ∈ g, j ≠ i} r_j = n_g/(n_g - 1) · (r_i - mean_g)

    The baseline does not depend on r_i, so the policy gradient is unbiased.

    Args:
        rewards: (B,) rewards, in any unit.
        group_ids: (B,) integers in [0, num_groups).
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B.
        normalize: divide A_i by (std of the other samples + eps). Where the others are all equal,
            or there is only one, A_i stays undivided: an exact 0 has no scale to offer.
        ddof: 1 for the sample standard deviation of the others, 0 for the population's.
        eps: added to the standard deviation, in the unit of the rewards.
        fallback: as in :func:`group_mean`.
        axis_name: as in :func:`group_mean`.

    Returns:
        (B,) advantages in the unit of the rewards; with ``normalize``, in standard deviations.

    Raises:
        TypeError, ValueError: as :func:`group_mean`.

    Source: Kool et al., "Buy 4 REINFORCE Samples, Get a Baseline for Free!" (2019); Ahmadian et
    al., "Back to Basics" (2024).
    """
    batch = grouped(rewards, group_ids, where, num_groups, fallback, axis_name)
    if not normalize:
        return batch.run(_leave_one_out, fallback=fallback)
    _checks.one_of("ddof", ddof, (0, 1))
    eps = _checks.number("eps", eps, 0)
    return batch.run(leave_one_out_normalized, eps, fallback=fallback, ddof=ddof)


@core
def _leave_one_out(
    ids: Array, where: Array | None, rewards: Array, *, num_groups: int, axes: Any, fallback: str
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    stats = centred(groups, rewards)
    advantages = deviations(groups, stats) * groups.rows(others(stats.num_valid))
    return finish(groups, stats, advantages, rewards, fallback)


def batch_mean(
    rewards: Values,
    *,
    where: Values | None = None,
    fallback: Literal["zero", "raw"] = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of the batch.

        A_i = r_i - (1/B) Σ_j r_j

    Args:
        rewards: (B,) rewards, in any unit.
        where: (B,) booleans; False where the reward is not a measurement.
        fallback: the advantage of a sample that is alone in its batch: "zero" or "raw".
        axis_name: as in :func:`group_mean`.

    Returns:
        (B,) advantages in the unit of the rewards.

    Raises:
        TypeError, ValueError: as :func:`group_mean`.

    Source: REINFORCE with an average baseline, Williams (1992); at one rollout a prompt, the
    "flash_reinforce" of OpenRLHF.
    """
    return ungrouped(rewards, where, fallback, axis_name).run(_group_mean, fallback=fallback)


def batch_leave_one_out(
    rewards: Values,
    *,
    where: Values | None = None,
    fallback: Literal["zero", "raw"] = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the mean of all other rewards of the batch.

        A_i = r_i - (1/(B - 1)) Σ_{j ≠ i} r_j

    Unbiased, like :func:`leave_one_out`, and defined at one rollout a prompt. Its variance holds
    the differences between prompts, which a group baseline takes out.

    Args:
        rewards: (B,) rewards, in any unit.
        where: (B,) booleans; False where the reward is not a measurement.
        fallback: the advantage of a sample that is alone in its batch: "zero" or "raw".
        axis_name: as in :func:`group_mean`.

    Returns:
        (B,) advantages in the unit of the rewards.

    Raises:
        TypeError, ValueError: as :func:`group_mean`.

    Source: as :func:`leave_one_out`, over the batch.
    """
    return ungrouped(rewards, where, fallback, axis_name).run(_leave_one_out, fallback=fallback)


def constant_groups(
    rewards: Values,
    group_ids: Values,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    axis_name: Axis = None,
) -> Array:
    """Which groups hold two or more valid rewards that are all equal, and so no signal.

    Equal means max - min ≤ 4 ε max(|max|, |min|), with ε the spacing of the dtype at 1. Every
    estimator uses this definition.

    Args:
        rewards: (B,) rewards, in any unit.
        group_ids: (B,) integers in [0, num_groups).
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B.
        axis_name: as in :func:`group_mean`.

    Returns:
        (num_groups,) booleans; False for groups of one and for empty groups.

    Raises:
        TypeError, ValueError: as :func:`group_mean`.
    """
    columns = [("rewards", rewards, "float")]
    batch = flat_batch(columns, group_ids, where, num_groups, axis_name)  # type: ignore[arg-type]
    return batch.run(_constant_groups, results=GROUPS)


@core
def _constant_groups(
    ids: Array, where: Array | None, rewards: Array, *, num_groups: int, axes: Any
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    return spread(groups, rewards).constant & (groups.sum(jnp.ones_like(rewards)) >= 2)
