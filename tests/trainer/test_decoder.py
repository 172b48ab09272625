"""The embedded decoder: its equations, padding, and its cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advlib import trainer
from advlib.trainer import DecoderConfig
from tests.trainer.numpy_decoder import sequence_logits
from tests.trainer.small import TINY, params

CONFIGS = [
    TINY,
    TINY._replace(layers=1, heads=4, kv_heads=2, head_width=2, norm_eps=1e-2, tied=False),
]


def positions(mask: np.ndarray) -> np.ndarray:
    return np.maximum(np.cumsum(mask, 1) - 1, 0).astype(np.int32)


@pytest.mark.parametrize("config", CONFIGS, ids=["tied", "untied"])
def test_logits_are_those_of_the_equations(config: DecoderConfig) -> None:
    tree = params(config)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (4, 9)).astype(np.int32)
    mask = np.ones(tokens.shape, bool)
    got = jax.jit(trainer.decoder(config).apply)(tree, tokens, positions(mask), mask)
    assert got.dtype == jnp.float32
    exact = jax.tree.map(lambda array: np.asarray(array, np.float64), tree)
    for row, wanted in zip(got, (sequence_logits(config, exact, t) for t in tokens), strict=True):
        np.testing.assert_allclose(row, wanted, rtol=0, atol=2e-6)


def test_padding_on_either_side_changes_nothing() -> None:
    policy, tree = trainer.decoder(TINY), params(TINY)
    tokens = np.random.default_rng(1).integers(0, 11, (1, 5)).astype(np.int32)
    mask = np.ones((1, 5), bool)
    alone = jax.jit(policy.apply)(tree, tokens, positions(mask), mask)
    for padding in (3, 9):
        padded = np.concatenate([np.full((1, 4), padding), tokens, np.full((1, 2), padding)], 1)
        real = (np.arange(11)[None] >= 4) & (np.arange(11)[None] < 9)
        got = jax.jit(policy.apply)(tree, padded.astype(np.int32), positions(real), real)
        np.testing.assert_allclose(got[:, 4:9], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS, ids=["tied", "untied"])
def test_the_cache_gives_the_same_logits(config: DecoderConfig) -> None:
    policy, tree = trainer.decoder(config), params(config)
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, config.vocab_size, (4, 9)).astype(np.int32)
    mask = np.arange(9)[None] >= np.array([0, 1, 3, 4])[:, None]
    whole = jax.jit(policy.apply)(tree, tokens, positions(mask), mask)
    cache = policy.init_cache(tree, 4, 12)
    apply_cached = jax.jit(policy.apply_cached)
    start = 0
    for columns in (6, 1, 1, 1):
        part = slice(start, start + columns)
        logits, cache = apply_cached(
            tree, tokens[:, part], positions(mask)[:, part], mask[:, part], cache
        )
        start += columns
        np.testing.assert_allclose(logits, whole[:, start - 1], rtol=0, atol=2e-6)


def test_a_token_sees_none_after_it() -> None:
    policy, tree = trainer.decoder(TINY), params(TINY)
    tokens = np.random.default_rng(3).integers(0, 11, (1, 6)).astype(np.int32)
    mask = np.ones((1, 6), bool)
    changed = tokens.copy()
    changed[0, 4] = (changed[0, 4] + 1) % 11
    before, after = (
        jax.jit(policy.apply)(tree, t, positions(mask), mask) for t in (tokens, changed)
    )
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(np.asarray(before - after))[:, 4:].max() > 1e-3


def test_half_precision_keeps_logits_wide_and_close() -> None:
    policy, tree = trainer.decoder(TINY), params(TINY)
    half = jax.tree.map(lambda array: array.astype(jnp.bfloat16), tree)
    tokens = np.random.default_rng(4).integers(0, 11, (2, 6)).astype(np.int32)
    mask = np.ones((2, 6), bool)
    with jax.numpy_dtype_promotion("standard"):  # JAX's attention mixes dtypes
        got = jax.jit(policy.apply)(half, tokens, positions(mask), mask)
    assert got.dtype == jnp.float32
    wanted = jax.jit(policy.apply)(tree, tokens, positions(mask), mask)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=0.05)
    assert policy.init_cache(half, 2, 6).keys[0].dtype == jnp.bfloat16


def test_the_default_has_eight_hundred_thousand_parameters() -> None:
    tree = jax.eval_shape(trainer.decoder().init, jax.random.key(0))
    assert sum(array.size for array in jax.tree.leaves(tree)) == 820_736


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3, "kv_heads": 2}, "heads must be a multiple of kv_heads; got 3 and 2"),
        ({"head_width": 3}, "head_width must be even; got 3"),
        ({"layers": 0}, "layers must be at least 1; got 0"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer.decoder(TINY._replace(**change))


def test_a_size_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"width must be an integer; got 8\.0"):
        trainer.decoder(TINY._replace(width=8.0))  # type: ignore[arg-type]
