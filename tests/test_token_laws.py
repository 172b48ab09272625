"""The same laws for tokens: what the mask leaves out is not there."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import advlib
from advlib import masking
from tests import reference

POISONS = (np.nan, np.inf, -np.inf, 1e30)
# One token; less than a block; a block and one; several blocks.
LENGTHS = (1, 5, 33, 100)


class Tokens(NamedTuple):
    rewards: Any
    values: Any
    mask: Any
    discount: Any
    lam: Any
    bootstrap: Any


@st.composite
def token_batches(draw: Any, lengths: tuple[int, ...] = LENGTHS) -> Tokens:
    length, rng = draw(st.sampled_from(lengths)), np.random.default_rng(draw(st.integers(0, 9999)))
    share = draw(st.sampled_from([0.0, 0.2, 0.8, 1.0]))
    mask = rng.random((3, length)) < share
    if draw(st.booleans()):  # a long observation in the middle, and a padded end
        mask[0, length // 4 : length // 2] = False
        mask[1, -(length // 3) - 1 :] = False
    return Tokens(
        rewards=rng.integers(-8, 9, (3, length)).astype(np.float32) / 8,
        values=rng.integers(-8, 9, (3, length)).astype(np.float32) / 8,
        mask=mask,
        discount=np.float32(draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))),
        lam=np.float32(draw(st.sampled_from([0.0, 0.7, 0.95, 1.0]))),
        bootstrap=rng.integers(-4, 5, 3).astype(np.float32) / 4,
    )


def law(examples: int = 25) -> Any:
    return settings(max_examples=examples)


def gae_of(lib: Any, t: Tokens, masked: bool = True) -> Any:
    return lib.gae(
        t.rewards,
        t.values,
        mask=t.mask if masked else None,
        discount=t.discount,
        lam=t.lam,
        bootstrap=t.bootstrap,
    )


jitted_gae = jax.jit(lambda t: gae_of(advlib, t))


@functools.cache
def gae_gradient() -> Any:
    def loss(signal: tuple[Any, Any], t: Tokens) -> jax.Array:
        a = gae_of(advlib, t._replace(rewards=signal[0], values=signal[1]))
        return jnp.sum(a * jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape))

    return jax.jit(jax.grad(loss))


def scale_of(t: Tokens) -> float:
    """Undiscounted sums grow with the length, and their rounding with them."""
    decay = float(t.discount) * float(t.lam)
    return min(t.mask.shape[1], 1 / (1 - decay) if decay < 1 else np.inf)


@law(40)
@given(t=token_batches())
def test_gae_equals_the_reference(t: Tokens) -> None:
    got, wanted = np.asarray(gae_of(advlib, t)), gae_of(reference, t)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * (1 + scale_of(t)))
    assert np.all(got[~t.mask] == 0.0)
    assert got.dtype == np.float32
    np.testing.assert_allclose(jitted_gae(t), got, rtol=0, atol=2e-6 * (1 + scale_of(t)))


@law()
@given(t=token_batches())
def test_gae_without_a_mask_is_a_full_mask(t: Tokens) -> None:
    full = t._replace(mask=np.ones_like(t.mask))
    got, wanted = gae_of(advlib, t, masked=False), gae_of(reference, full)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * (1 + scale_of(t)))
    np.testing.assert_allclose(gae_of(advlib, full), wanted, rtol=0, atol=2e-6 * (1 + scale_of(t)))


@law()
@given(t=token_batches())
def test_gae_poison_in_masked_tokens_changes_no_bit(t: Tokens) -> None:
    clean = t._replace(rewards=np.where(t.mask, t.rewards, 0), values=np.where(t.mask, t.values, 0))
    wanted = np.asarray(jitted_gae(clean))
    slope = gae_gradient()((clean.rewards, clean.values), clean)
    for part in slope:
        assert np.all(np.isfinite(part))
        assert np.all(np.asarray(part)[~t.mask] == 0.0)
    for poison in POISONS:
        dirty = t._replace(
            rewards=np.where(t.mask, t.rewards, np.float32(poison)),
            values=np.where(t.mask, t.values, np.float32(poison)),
        )
        assert np.asarray(jitted_gae(dirty)).tobytes() == wanted.tobytes()
        got = gae_gradient()((dirty.rewards, dirty.values), dirty)
        assert all(
            np.asarray(g).tobytes() == np.asarray(w).tobytes()
            for g, w in zip(got, slope, strict=True)
        )


@law(15)
@given(t=token_batches((33,)), data=st.data())
def test_gae_gaps_close_up(t: Tokens, data: Any) -> None:
    """Masked tokens might as well not have been written."""
    row = data.draw(st.integers(0, 2))
    kept = t.mask[row]
    closed = np.zeros((3, 33), np.float32)
    values, mask = np.zeros((3, 33), np.float32), np.zeros((3, 33), np.bool_)
    count = int(kept.sum())
    closed[row, :count], values[row, :count] = t.rewards[row][kept], t.values[row][kept]
    mask[row, :count] = True
    got = np.asarray(jitted_gae(t._replace(rewards=closed, values=values, mask=mask)))
    wanted = np.asarray(jitted_gae(t))
    np.testing.assert_allclose(
        got[row, :count], wanted[row][kept], rtol=0, atol=4e-6 * (1 + scale_of(t))
    )


def test_gae_rows_vmap_and_lists_agree() -> None:
    rng = np.random.default_rng(0)
    r, v = (rng.normal(size=(3, 33)).astype(np.float32) for _ in range(2))
    mask = rng.random((3, 33)) < 0.7
    wanted = np.asarray(advlib.gae(r, v, mask=mask))
    rows = [advlib.gae(a, b, mask=m) for a, b, m in zip(r, v, mask, strict=True)]
    np.testing.assert_allclose(rows, wanted, atol=1e-5)
    mapped = jax.jit(jax.vmap(lambda a, b, m: advlib.gae(a, b, mask=m)))
    np.testing.assert_allclose(mapped(r, v, mask), wanted, atol=1e-5)
    np.testing.assert_array_equal(advlib.gae(r.tolist(), v.tolist(), mask=mask.tolist()), wanted)
    narrow = np.round(r * 8) / 8, np.round(v * 8) / 8
    half = advlib.gae(*(jnp.asarray(a, jnp.bfloat16) for a in narrow), mask=mask)
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, advlib.gae(*narrow, mask=mask), atol=1e-5)


def test_gae_shows_a_nan_before_it_and_in_its_row_only() -> None:
    r, v = np.ones((2, 40), np.float32), np.zeros((2, 40), np.float32)
    r[0, 20] = np.nan
    for mask in (None, np.ones((2, 40), np.bool_)):
        got = np.asarray(jax.jit(lambda r, v, m=mask: advlib.gae(r, v, mask=m))(r, v))
        assert np.all(np.isnan(got[0, :21]))
        assert np.all(np.isfinite(got[1]))
        np.testing.assert_allclose(got[1], reference.gae(r[1], v[1]), atol=1e-4)


def test_gae_in_float64() -> None:
    rng = np.random.default_rng(1)
    r, v = rng.normal(size=(2, 100)), rng.normal(size=(2, 100))
    mask = rng.random((2, 100)) < 0.6
    with jax.enable_x64(True):
        for m in (None, mask):
            got = np.asarray(advlib.gae(r, v, mask=m, discount=0.99, lam=0.9))
            assert got.dtype == np.float64
            wanted = reference.gae(r, v, mask=m, discount=0.99, lam=0.9)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_gae_of_nothing() -> None:
    for shape in ((0,), (0, 4), (4, 0)):
        zeros = np.zeros(shape, np.float32)
        assert np.asarray(advlib.gae(zeros, zeros)).shape == shape
        assert np.asarray(advlib.gae(zeros, zeros, mask=zeros.astype(bool))).shape == shape


def test_gae_gradient_at_the_ends_of_its_options() -> None:
    r, v = np.ones((1, 40), np.float32), np.zeros((1, 40), np.float32)
    mask = np.arange(40)[None] % 3 > 0

    def total(options: tuple[Any, Any, Any], m: Any) -> jax.Array:
        discount, lam, end = options
        return advlib.gae(r, v, mask=m, discount=discount, lam=lam, bootstrap=end).sum()

    slope_of = jax.jit(jax.grad(total))
    for m in (None, mask):
        for discount, lam in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.9, 0.5)]:
            at = tuple(jnp.float32(x) for x in (discount, lam, 0.5))
            slope = [float(s) for s in slope_of(at, m)]
            assert np.all(np.isfinite(slope))
            if m is not None:
                continue
            step = 1e-5
            for i in range(3):
                up, down = ([float(x) for x in at] for _ in range(2))
                up[i], down[i] = up[i] + step, down[i] - step
                ends = [
                    reference.gae(r[0], v[0], discount=x[0], lam=x[1], bootstrap=x[2]).sum()
                    for x in (up, down)
                ]
                wanted = (ends[0] - ends[1]) / (2 * step)
                np.testing.assert_allclose(slope[i], wanted, rtol=2e-3, atol=2e-3)


@law()
@given(t=token_batches((5, 33)), data=st.data())
def test_masked_mean_and_whitening_equal_the_reference(t: Tokens, data: Any) -> None:
    x, mask = t.rewards + np.float32(3.0), t.mask
    axis = data.draw(st.sampled_from([None, 0, 1]))
    got = masking.masked_mean(x, mask, axis)
    np.testing.assert_allclose(got, reference.masked_mean(x, mask, axis), rtol=0, atol=1e-5)
    ddof = data.draw(st.sampled_from([0, 1]))
    got = np.asarray(masking.masked_whiten(x, mask, ddof=ddof))
    wanted = reference.masked_whiten(x, mask, ddof=ddof)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
    assert np.all(got[~mask] == 0.0)
    for poison in POISONS:
        dirty = np.where(mask, x, np.float32(poison))
        assert np.asarray(masking.masked_whiten(dirty, mask, ddof=ddof)).tobytes() == got.tobytes()
        assert np.all(np.isfinite(masking.masked_mean(dirty, mask, axis)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_whitening_hides_no_value_that_was_not_masked(value: float) -> None:
    x, mask = np.array([1.0, value, 2.0], np.float32), np.array([True, True, True])
    assert np.all(np.isnan(masking.masked_whiten(x, mask)))


def test_whitening_equal_values_is_exactly_zero() -> None:
    first = jax.jit(jax.value_and_grad(lambda x, m: masking.masked_whiten(x, m)[0]))
    for value in (0.1, 0.85, 0.97, 1 / 3):
        for size in range(1, 10):
            x, mask = np.full(12, value, np.float32), np.arange(12) < size
            got, slope = first(x, mask)
            assert float(got) == 0.0
            assert np.all(np.isfinite(slope))
            assert np.all(np.asarray(masking.masked_whiten(x, mask)) == 0.0)


@law()
@given(t=token_batches((5,)))
def test_tokens_get_their_rows_advantage(t: Tokens) -> None:
    got = advlib.broadcast_to_tokens(t.bootstrap, t.mask)
    np.testing.assert_array_equal(got, reference.broadcast_to_tokens(t.bootstrap, t.mask))
    nowhere = t.bootstrap.copy()
    nowhere[~t.mask.any(axis=1)] = np.nan
    assert np.array_equal(np.asarray(advlib.broadcast_to_tokens(nowhere, t.mask)), np.asarray(got))


@law()
@given(t=token_batches((5,)))
def test_a_settled_reward_keeps_its_sum_and_stands_on_trained_tokens(t: Tokens) -> None:
    settled = np.asarray(masking.settle_rewards(t.rewards, t.mask))
    assert np.all(settled[~t.mask] == 0.0)
    trained = t.mask.any(axis=1)
    np.testing.assert_allclose(settled[trained].sum(1), t.rewards[trained].sum(1), atol=1e-6)
    placed = np.asarray(masking.rewards_to_tokens(t.bootstrap, t.mask))
    for row in range(3):
        where = np.flatnonzero(t.mask[row])
        wanted = np.zeros(5, np.float32)
        if where.size:
            wanted[where[-1]] = t.bootstrap[row]
        np.testing.assert_array_equal(placed[row], wanted)
