"""Losses of tokens against float64 loops, their gradients, and what a mask leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import advlib
from advlib import losses
from tests import reference

POISONS = (np.nan, np.inf, -np.inf, 1e30, -1e30)
PER_TOKEN = {
    "policy_gradient": losses.policy_gradient,
    "ppo_clip": losses.ppo_clip(low=0.2, high=0.3),
    "cross_entropy": losses.cross_entropy,
    "kl_k1": losses.kl_k1,
    "kl_k2": losses.kl_k2,
    "kl_k3": losses.kl_k3,
}
REDUCED = ("token_mean", "sequence_mean", "sequence_mean_token_mean", "constant")


def inputs_of(name: str, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Log-probabilities, those to compare with, and advantages where the loss has some."""
    rng = np.random.default_rng(seed)
    now = -rng.exponential(1.0, (4, 6)).astype(np.float32)
    other = (now + rng.normal(0, 0.5, now.shape)).astype(np.float32)
    advantages = rng.normal(size=now.shape).astype(np.float32)
    advantages[0] = 0.0
    return (now, other) if name.startswith("kl") else (now, other, advantages)


def masks(seed: int = 0) -> np.ndarray:
    """Ragged, with a hole, and one row that is not trained at all."""
    mask = np.random.default_rng(seed).random((4, 6)) < 0.6
    mask[1], mask[2, 0] = False, True
    return mask


def reduced(name: str, values: Any, mask: Any, **options: Any) -> jax.Array:
    extra = (7.0,) if name == "constant" else ()
    return getattr(losses, name)(values, mask, *extra, **options)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_tokens_are_those_of_the_reference(name: str) -> None:
    arrays = inputs_of(name)
    got = PER_TOKEN[name](*arrays)
    assert got.shape == (4, 6)
    assert got.dtype == jnp.float32
    options = {"low": 0.2, "high": 0.3} if name == "ppo_clip" else {}
    wanted = getattr(reference, name)(*arrays, **options)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    now, *rest = inputs_of(name)
    slopes = jax.grad(lambda x: jnp.sum(PER_TOKEN[name](x, *rest)))(jnp.asarray(now))
    options = {"low": 0.2, "high": 0.3} if name == "ppo_clip" else {}
    exact = [array.astype(np.float64) for array in rest]
    h = 1e-6
    above, below = (
        getattr(reference, name)(now.astype(np.float64) + s, *exact, **options) for s in (h, -h)
    )
    np.testing.assert_allclose(slopes, (above - below) / (2 * h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", PER_TOKEN)
@pytest.mark.parametrize("reduction", REDUCED)
def test_what_stands_in_a_masked_slot_changes_no_bit(
    name: str, reduction: str, poison: float
) -> None:
    arrays, mask = inputs_of(name), masks()

    def value_and_slopes(*given: Any) -> Any:
        def total(*given: Any) -> jax.Array:
            return reduced(reduction, PER_TOKEN[name](*given, mask=mask), mask)

        return jax.value_and_grad(total, argnums=tuple(range(len(given))))(*given)

    clean = value_and_slopes(*map(jnp.asarray, arrays))
    dirty = [jnp.asarray(np.where(mask, array, np.float32(poison))) for array in arrays]
    poisoned = value_and_slopes(*dirty)
    jax.tree.map(np.testing.assert_array_equal, poisoned, clean)
    assert all(np.all(np.isfinite(slope)) for slope in clean[1])
    assert all(np.all(np.asarray(slope)[~mask] == 0) for slope in clean[1])


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", REDUCED)
def test_reductions_select_by_themselves(name: str, poison: float) -> None:
    values, mask = inputs_of("kl_k2")[0], masks()
    dirty = np.where(mask, values, np.float32(poison))
    for given in (values, dirty):
        got, slopes = jax.value_and_grad(lambda x: reduced(name, x, mask))(jnp.asarray(given))
        extra = (7.0,) if name == "constant" else ()
        wanted = getattr(reference, name)(values, mask, *extra)
        np.testing.assert_allclose(got, wanted, rtol=2e-6)
        assert np.all(np.asarray(slopes)[~mask] == 0)
        assert np.all(np.asarray(slopes)[mask] > 0)


@pytest.mark.parametrize("name", REDUCED)
def test_a_masked_row_is_a_deleted_row_and_nothing_trained_is_zero(name: str) -> None:
    values, mask = inputs_of("kl_k2")[0], masks()
    deleted = reduced(name, np.delete(values, 1, 0), np.delete(mask, 1, 0))
    np.testing.assert_allclose(reduced(name, values, mask), deleted, rtol=1e-6)
    nothing, slopes = jax.value_and_grad(lambda x: reduced(name, x, np.zeros_like(mask)))(
        jnp.full(values.shape, jnp.nan)
    )
    assert float(nothing) == 0
    np.testing.assert_array_equal(slopes, 0)
    assert float(reduced(name, np.zeros((0, 4)), np.zeros((0, 4), bool))) == 0  # BR-73


@pytest.mark.parametrize("name", REDUCED)
def test_rows_on_eight_devices_are_one_batch(name: str) -> None:
    """BR-58: a mean of the shards' means weighs a token by the shard that it is on."""
    rng = np.random.default_rng(3)
    values, mask = rng.normal(size=(16, 5)).astype(np.float32), rng.random((16, 5)) < 0.4
    mesh = Mesh(np.array(jax.devices()), ("rows",))

    def loss(values: jax.Array, mask: jax.Array) -> jax.Array:
        return reduced(name, values, mask)

    split = jax.shard_map(
        loss, mesh=mesh, in_specs=PartitionSpec("rows"), out_specs=PartitionSpec()
    )
    np.testing.assert_allclose(jax.jit(split)(values, mask), loss(values, mask), rtol=2e-6)
    slopes, whole = (jax.jit(jax.grad(f))(values, mask) for f in (split, loss))
    np.testing.assert_allclose(slopes, whole, rtol=2e-6, atol=1e-8)


def test_the_denominators_differ_as_reported() -> None:
    """BR-56: response A has 2 tokens of loss 1, response B 8 of loss 0."""
    values = np.zeros((2, 8), np.float32)
    mask = np.ones((2, 8), bool)
    values[0, :2], mask[0, 2:] = 1.0, False
    assert float(losses.token_mean(values, mask)) == pytest.approx(0.2)
    assert float(losses.sequence_mean_token_mean(values, mask)) == pytest.approx(0.5)
    assert float(losses.sequence_mean(values, mask)) == pytest.approx(1.0)
    assert float(losses.constant(values, mask, 2 * 8)) == pytest.approx(0.125)


def test_micro_batches_add_up_to_the_mean_of_all_tokens() -> None:
    """BR-54 and BR-55: [1, 1] and [4] are 6/3, not (1 + 4)/2, and not divided once more."""
    parts = [(np.array([[1.0, 1.0]]), np.array([[True, True]]))]
    parts += [(np.array([[4.0, 9.0]]), np.array([[True, False]]))]
    tokens = sum(mask.sum() for _, mask in parts)
    assert sum(float(losses.constant(*part, tokens)) for part in parts) == pytest.approx(2.0)
    whole = [np.concatenate(both) for both in zip(*parts, strict=True)]
    assert float(losses.token_mean(*whole)) == pytest.approx(2.0)
    slopes = [jax.grad(losses.constant)(jnp.asarray(v), m, tokens) for v, m in parts]
    np.testing.assert_allclose(
        np.concatenate(slopes), jax.grad(losses.token_mean)(jnp.asarray(whole[0]), whole[1])
    )


def test_divergences_are_those_of_the_report() -> None:
    """BR-64: neither the names nor the arguments are swapped; BR-61: k3 has a gradient."""
    now, other = np.float32([[-1.0]]), np.float32([[-1.5]])
    for name, wanted in (("kl_k1", 0.5), ("kl_k2", 0.125), ("kl_k3", 0.10653066)):
        assert float(PER_TOKEN[name](now, other)[0, 0]) == pytest.approx(wanted, rel=1e-5)
    slope = jax.grad(lambda x: losses.kl_k3(x, other)[0, 0])(jnp.asarray(now))
    assert float(slope[0, 0]) == pytest.approx(1 - np.exp(-0.5), rel=1e-5)


def test_large_drift_stays_finite_and_leaves_the_other_tokens_alone() -> None:
    """BR-62: exp(100) is more than float32 holds."""
    now, other = jnp.float32([[-100.0, -1.0]]), np.float32([[0.0, -1.5]])
    value, slopes = jax.value_and_grad(lambda x: jnp.sum(losses.kl_k3(x, other)))(now)
    assert np.isfinite(value)
    assert np.isfinite(slopes).all()
    assert float(slopes[0, 0]) < -1e8  # still pulled back
    assert float(losses.kl_k3(now, other)[0, 1]) == pytest.approx(0.10653066, rel=1e-5)


def test_a_clipped_ratio_is_finite_whatever_it_is() -> None:
    """BR-68: the loss is -1.2 and its gradient 0, not NaN."""
    loss = losses.ppo_clip(low=0.2, high=0.2)

    def value(now: jax.Array, advantages: Any) -> jax.Array:
        return jnp.sum(loss(now, jnp.full(now.shape, -100.0), jnp.asarray(advantages)))

    told, slope = jax.value_and_grad(value)(jnp.zeros((1, 1)), [[1.0]])
    assert (float(told), float(slope[0, 0])) == (pytest.approx(-1.2), 0.0)
    told, slope = jax.value_and_grad(value)(jnp.zeros((1, 1)), [[0.0]])
    assert (float(told), float(slope[0, 0])) == (0.0, 0.0)


def test_gradients_of_the_divergences_are_what_the_pages_say() -> None:
    """All outcomes of one token: k1 has no gradient, k2 that of KL(π‖ref), k3 of KL(ref‖π)."""
    with jax.enable_x64(True):
        logits, other = jnp.array([0.3, -1.0, 0.8]), jax.nn.log_softmax(jnp.array([1.0, 0.0, -0.5]))

        def expected(kl: Callable[..., jax.Array]) -> jax.Array:
            chances = jax.nn.softmax(logits)
            terms = [
                chances[y]
                * jax.grad(lambda x, y=y: kl(jax.nn.log_softmax(x)[y][None], other[y][None])[0])(
                    logits
                )
                for y in range(3)
            ]
            return sum(terms[1:], terms[0])

        def forward(x: jax.Array) -> jax.Array:
            lp = jax.nn.log_softmax(x)
            return jnp.sum(jnp.exp(lp) * (lp - other))

        def backward(x: jax.Array) -> jax.Array:
            return jnp.sum(jnp.exp(other) * (other - jax.nn.log_softmax(x)))

        np.testing.assert_allclose(expected(losses.kl_k1), 0, atol=1e-12)
        np.testing.assert_allclose(expected(losses.kl_k2), jax.grad(forward)(logits), rtol=1e-10)
        np.testing.assert_allclose(expected(losses.kl_k3), jax.grad(backward)(logits), rtol=1e-10)
        mean = sum(
            float(jnp.exp(lp) * losses.kl_k3(lp[None], q[None])[0])
            for lp, q in zip(jax.nn.log_softmax(logits), other, strict=True)
        )
        assert mean == pytest.approx(float(forward(logits)), rel=1e-10)


@pytest.mark.parametrize(
    ("name", "shapes"),
    list(itertools.product(PER_TOKEN, [((2, 2), (2,)), ((2, 3), (3, 2)), ((2, 2), (2, 1))])),
)
def test_nothing_is_broadcast(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """BR-60: advantages (B,) or (B, 1) against (B, T) are an error."""
    count = 2 if name.startswith("kl") else 3
    arrays = [np.ones(shapes[0])] * (count - 1) + [np.ones(shapes[1])]
    with pytest.raises(ValueError, match="must have one shape; got log_probs"):
        PER_TOKEN[name](*arrays)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.ppo_clip(low=1.5), r"low must be in \[0, 1\]"),
        (lambda: losses.ppo_clip(high=-0.1), "high must be at least 0"),
        (lambda: losses.token_mean([1.0], [True]), r"must be \(B, T\) of one shape"),
        (lambda: losses.sequence_mean([[1.0]], [[True, False]]), r"\(1, 1\) and \(1, 2\)"),
        (lambda: losses.constant([[1.0]], [[True]], 0), "denominator must be above 0; got 0"),
        (lambda: losses.kl_k1([[1.0]], [[1.0]], mask=[True]), r"mask \(1,\)"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_they_are_public() -> None:
    assert advlib.losses is losses
    assert set(losses.__all__) == {*PER_TOKEN, *REDUCED, "Divergence", "Loss"}


def test_clips_may_be_open() -> None:
    """low = 1 never stops a fall."""
    now, then = np.float32([[-50.0]]), np.float32([[-1.0]])
    got = losses.ppo_clip(low=1.0, high=0.2)(now, then, np.float32([[-1.0]]))
    assert float(got[0, 0]) == pytest.approx(np.exp(-49.0), rel=1e-5)
