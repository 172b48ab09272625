"""Baselines from the rewards of alike prompts, for batches in which every prompt is another one.

Three paths give the same numbers and are chosen by what comes in. Dense features are computed where
they are, jitted. SciPy matrices are computed on the host, as a dense product over the most frequent
words and a sparse one over the rest. Repeated rows, in either form, are computed once.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks
from advlib._batch import FlatBatch, bucket, flat_batch
from advlib._checks import Values
from advlib._mesh import Axis
from advlib.estimators import _kernel_checks, _kernel_dense, _kernel_host, _kernel_rows

Features = Values | Any
Alone = Literal["zero", "raw"]

# Up to here the calls cost more than the arithmetic.
FEW = 64
# Up to here it is not worth looking for repeated rows.
SOME = 512


def kernel_baseline(
    features: Features,
    rewards: Values,
    *,
    temperature: ArrayLike = 0.1,
    where: Values | None = None,
    weights: Values | None = None,
    fallback: Alone = "zero",
    axis_name: Axis = None,
) -> Array:
    """Mean of the other rewards of the batch, weighted by how alike the prompts are.

        b_i = Σ_{j ≠ i} w_ij r_j / Σ_{j ≠ i} w_ij,    w_ij = o_j exp(cos(x_i, x_j) / T)

    Neither r_i nor o_i enters b_i, to the last bit. The cosine with a row of zeros is 0, so a
    prompt without a known word gets the plain mean of the others. As T grows all others weigh the
    same; as T falls only the most alike ones count.

    Args:
        features: (B, D) one row per sample, made of its prompt alone: an array, computed where it
            is, or a SciPy sparse matrix, computed on the host. Rows need not be normalised.
        rewards: (B,) rewards, in any unit.
        temperature: T, at least 1e-4; ``inf`` weighs all others the same. In float32 cosines are
            off by up to 1e-7, and logarithms of weights by 1e-7 / T.
        where: (B,) booleans; False where the reward is not a measurement. Such a sample has no
            weight for others. Its own baseline is given all the same.
        weights: (B,) o_j, at least 0: how much sample j counts for others. A weight of 2 is the
            sample twice. Default: 1 each.
        fallback: what a sample gets that has nobody to be compared with: the baseline that makes
            its advantage "zero", its own reward; or the one that leaves it "raw", 0.
        axis_name: as in :func:`advlib.group_mean`; every sample is then compared with those of all
            shards.

    Returns:
        (B,) baselines in the unit of the rewards, float32 (float64 for float64 rewards under x64).

    Raises:
        TypeError: a dtype is wrong; a SciPy matrix meets traced values.
        ValueError: shapes differ; ``temperature`` is below 1e-4; in host arrays, a feature, a
            reward or a weight of a valid sample is not finite, or a weight is negative.

    Source: Nadaraya-Watson regression (1964), left one out.
    """
    return _estimate(
        features, rewards, temperature, where, weights, fallback, axis_name, advantages=False
    )


def gs1(
    features: Features,
    rewards: Values,
    *,
    temperature: ArrayLike = 0.1,
    where: Values | None = None,
    weights: Values | None = None,
    fallback: Alone = "zero",
    axis_name: Axis = None,
) -> Array:
    """Reward minus the kernel mean of the other rewards: an advantage at one rollout a prompt.

        A_i = Σ_{j ≠ i} p_ij (r_i - r_j),    p_ij = w_ij / Σ_{k ≠ i} w_ik

    with the weights of :func:`kernel_baseline`. The baseline does not depend on response i, so the
    policy gradient is unbiased. Equal prompts give :func:`advlib.batch_leave_one_out`; groups of
    equal prompts, at a low temperature, :func:`advlib.leave_one_out`. Constant rewards give exact
    zeros.

    Args:
        features: (B, D) as in :func:`kernel_baseline`.
        rewards: (B,) rewards, in any unit.
        temperature: T, at least 1e-4, or ``inf``.
        where: (B,) booleans; False where the reward is not a measurement: advantage exactly 0.
        weights: (B,) how much each sample counts for the others.
        fallback: the advantage of a sample that has nobody to be compared with: "zero", or "raw",
            the reward itself.
        axis_name: as in :func:`kernel_baseline`.

    Returns:
        (B,) advantages in the unit of the rewards.

    Raises:
        TypeError, ValueError: as :func:`kernel_baseline`.

    Source: the kernel baseline of GS1 experiments, by the example kernel that was published.
    """
    return _estimate(
        features, rewards, temperature, where, weights, fallback, axis_name, advantages=True
    )


def _estimate(
    features: Features,
    rewards: Values,
    temperature: Any,
    where: Values | None,
    weights: Values | None,
    fallback: str,
    axis_name: Axis,
    *,
    advantages: bool,
) -> Array:
    _checks.one_of("fallback", fallback, ("zero", "raw"))
    temperature = _checks.number("temperature", temperature, 1e-4)
    sparse = hasattr(features, "tocsr")
    if sparse:
        rewards = _kernel_checks.on_host("rewards", rewards)
        where, weights = (
            _kernel_checks.on_host("where", where),
            _kernel_checks.on_host("weights", weights),
        )
        temperature = _checks.number(
            "temperature", _kernel_checks.on_host("temperature", temperature), 1e-4
        )
    columns: list[Any] = [("rewards", rewards, "float"), ("weights", weights, "float")]
    batch = flat_batch(columns, None, where, None, axis_name)
    rows = (
        _kernel_checks.sparse_rows(features)
        if sparse
        else _checks.array("features", features, "float")
    )
    if rows.ndim != 2 or rows.shape[0] != batch.size:
        raise ValueError(
            f"features must have one row per reward, ({batch.size}, D); "
            f"got shape {tuple(rows.shape)}"
        )
    if batch.on_host:
        _kernel_checks.check_weights(batch)
        if _checks.is_host(rows) or sparse:
            rows = _kernel_checks.finite_rows(rows, batch.valid[: batch.size])
    if sparse and batch.size <= FEW:
        return _from_means(_few(rows, batch, temperature), batch, fallback, advantages)
    on_host = sparse or (batch.on_host and _checks.is_host(rows))
    found = _kernel_rows.repeats(rows) if on_host and batch.size > SOME else None
    few = found is not None and len(found.kept) * 4 <= batch.size
    if sparse or (few and not isinstance(temperature, jax.Array)):
        means = _many(_kernel_rows.unit_rows(rows, found), batch, temperature)
        return _from_means(means, batch, fallback, advantages)
    return _dense(rows, batch, temperature, fallback, advantages)


def _few(rows: Any, batch: FlatBatch, temperature: float) -> _kernel_host.Means:
    plain = batch.where is None and batch.columns[1] is None
    rewards = np.asarray(batch.columns[0])[: batch.size]
    warm = temperature >= _kernel_host.WARM and rewards.dtype == np.float32
    cosines = _kernel_rows.few_cosines(rows, np.float32 if warm else np.float64)
    return _kernel_host.few_means(
        cosines,
        rewards.astype(np.float64),
        None if plain else _host_weights(batch),
        temperature,
    )


def _many(unit: _kernel_rows.UnitRows, batch: FlatBatch, temperature: float) -> _kernel_host.Means:
    rewards = np.asarray(batch.columns[0])[: batch.size]
    return _kernel_host.kernel_means(
        unit, rewards, _host_weights(batch), temperature, exact=rewards.dtype == np.float64
    )


def _host_weights(batch: FlatBatch) -> np.ndarray:
    valid, weights = batch.valid[: batch.size], batch.columns[1]
    if weights is None:
        return valid.astype(np.float64)
    return np.where(valid, np.asarray(weights)[: batch.size], 0).astype(np.float64)


def _from_means(
    means: _kernel_host.Means, batch: FlatBatch, fallback: str, advantages: bool
) -> Array:
    rewards = np.asarray(batch.columns[0])[: batch.size]
    own = rewards.astype(np.float64)
    if batch.where is not None:
        valid = batch.valid[: batch.size]
        own = np.where(valid, own, 0)
    if advantages:
        instead = own if fallback == "raw" else 0.0
        result = np.where(means.alone, instead, (own - means.reference) - means.mean)
        if batch.where is not None:
            result = np.where(valid, result, 0)
    else:
        instead = own if fallback == "zero" else 0.0
        result = np.where(means.alone, instead, means.reference + means.mean)
    return jnp.asarray(result.astype(rewards.dtype))


def _dense(
    features: Any, batch: FlatBatch, temperature: ArrayLike, fallback: str, advantages: bool
) -> Array:
    if batch.on_host:
        # Powers of two would quadruple the pairs of a large batch; whole tiles are enough.
        tile = _kernel_dense.TILE
        size = bucket(batch.size) if batch.size <= tile else -(-batch.size // tile) * tile
        batch = batch._replace(
            columns=tuple(None if c is None else c[:size] for c in batch.columns),
            ids=batch.ids[:size],
            where=None if batch.where is None else batch.where[:size],
        )
        extra = ((0, batch.ids.shape[0] - batch.size), (0, 0))
        if extra[0][1]:
            features = (np if _checks.is_host(features) else jnp).pad(features, extra)
    return batch.run(
        _kernel_dense.baseline,
        features,
        temperature,
        fallback=fallback,
        advantages=advantages,
        tile=_kernel_dense.tile_size(),
    )
