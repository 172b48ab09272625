"""GS1 that does no harm: between the kernel mean and the plain mean, as earlier batches advise."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks, _mesh
from advlib._checks import Values
from advlib._mesh import Axis
from advlib.estimators._group import batch_leave_one_out
from advlib.estimators._kernel import Features, gs1


class Shrinkage(NamedTuple):
    """What earlier batches said about the kernel; sums that are carried from batch to batch.

    Attributes:
        product: () Σ (r - l) (k - l), with l the mean of the others and k the kernel mean.
        square: () Σ (k - l)².
    """

    product: ArrayLike
    square: ArrayLike


class ShrunkGs1(NamedTuple):
    """Advantages of one batch, and what the next one is to be given.

    Attributes:
        advantages: (B,) in the unit of the rewards.
        share: () how much of the kernel is in them: 0 the mean of the others, 1 the kernel mean.
        state: for the next batch.
    """

    advantages: Array
    share: Array
    state: Shrinkage


def gs1_shrunk(
    features: Features,
    rewards: Values,
    state: Shrinkage | None = None,
    *,
    temperature: ArrayLike = 0.1,
    decay: float = 0.98,
    where: Values | None = None,
    weights: Values | None = None,
    fallback: Literal["zero", "raw"] = "zero",
    axis_name: Axis = None,
) -> ShrunkGs1:
    """Reward minus a mixture of the kernel mean and the plain mean of the other rewards.

        A_i = r_i - (1 - a) l_i - a k_i,    a = clip(Σ (r - l)(k - l) / Σ (k - l)², 0, 1)

    with k the baseline of :func:`advlib.kernel_baseline`, l that of
    :func:`advlib.batch_leave_one_out`, and the sums over *earlier* batches, each batch weighing
    ``decay`` times the one after it. That a is the mixture of least squared error. It does not
    depend on this batch's rewards, so the gradient stays unbiased; the first batch, without a
    history, gets a = 0.

    Args:
        features: (B, D) as in :func:`advlib.kernel_baseline`.
        rewards: (B,) rewards, in any unit.
        state: what the call for the batch before returned; None for the first batch.
        temperature: as in :func:`advlib.gs1`.
        decay: in [0, 1]: how much of the sums is kept from batch to batch. 0.98 remembers about 50.
        where: (B,) booleans; False where the reward is not a measurement.
        weights: (B,) how much each sample counts for the others.
        fallback: as in :func:`advlib.gs1`.
        axis_name: as in :func:`advlib.gs1`.

    Returns:
        Advantages, the share a that they were made with, and the state for the next batch.

    Raises:
        TypeError, ValueError: as :func:`advlib.gs1`; ``decay`` is not in [0, 1].

    Source: the least-squares combination of two leave-one-out predictors.
    """
    decay = _checks.number("decay", decay, 0, 1)
    options = {"where": where, "fallback": fallback, "axis_name": axis_name}
    by_kernel = gs1(features, rewards, temperature=temperature, weights=weights, **options)  # type: ignore[arg-type]
    if weights is None:
        plain = batch_leave_one_out(rewards, **options)  # type: ignore[arg-type]
    else:
        plain = gs1(features, rewards, temperature=jnp.inf, weights=weights, **options)  # type: ignore[arg-type]
    apart = plain - by_kernel
    # Rounding has a ratio of least squares too.
    rounding = 8 * jnp.finfo(apart.dtype).eps * jnp.maximum(jnp.abs(plain), jnp.abs(by_kernel))
    apart = jnp.where(jnp.abs(apart) <= rounding, 0, apart)
    sums = jnp.stack([jnp.sum(plain * apart), jnp.sum(apart * apart)])
    axes = _mesh.split_axes((plain,), axis_name)
    # The share is a constant, as everything that is known before the batch.
    sums = jax.lax.stop_gradient(jax.lax.psum(sums, axes) if axes else sums)
    product, square = (
        (jnp.zeros_like(sums[0]), jnp.zeros_like(sums[0]))
        if state is None
        else (jnp.asarray(value, sums.dtype) for value in state)
    )
    known = square > 0
    share = jnp.where(known, jnp.clip(product / jnp.where(known, square, 1), 0, 1), 0)
    advantages = plain - share * apart
    return ShrunkGs1(
        advantages, share, Shrinkage(decay * product + sums[0], decay * square + sums[1])
    )
