"""Logits are those of transformers: whole texts, left padding, through the cache, with LoRA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.llm import skip_without_extra
from tests.llm.conftest import FAMILIES, reference_logits

skip_without_extra()


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_transformers(name, folders, padded):
    from advlib.trainer.llm import load_llm

    loaded = load_llm(folders(name), lora_rank=None)
    wanted = reference_logits(folders(name), padded)
    seen = padded.mask
    # A model whose answer hardly depends on what it reads would pass with anything.
    assert np.abs(wanted[seen]).max() > 1
    policy, params = loaded.policy, loaded.params
    whole = np.asarray(jax.jit(policy.apply)(params, *padded))
    np.testing.assert_allclose(whole[seen], wanted[seen], rtol=0, atol=1e-3)

    cache = policy.init_cache(params, len(seen), 24)
    step = jax.jit(policy.apply_cached)
    logits, cache = step(params, *(part[:, :12] for part in padded), cache)
    columns = [logits]
    for column in range(12, 20):
        now = slice(column, column + 1)
        logits, cache = step(params, *(part[:, now] for part in padded), cache)
        columns.append(logits)
    cached, later = np.stack(columns, 1), seen[:, 11:]
    assert cached.dtype == np.float32
    np.testing.assert_allclose(cached[later], wanted[:, 11:][later], rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "gemma-7b", "gemma2", "gemma3"])
def test_lora_starts_as_the_model_and_reaches_every_matrix(name, folders, padded):
    from advlib.trainer.llm import load_llm

    lora = load_llm(folders(name), lora_rank=4, dtype="float32", seed=3)
    wanted = reference_logits(folders(name), padded)
    blocks = lora.architecture.layers
    matrices = {"gemma-7b": 5, "gemma2": 6, "gemma3": 6}.get(name, 7)
    assert len(lora.params) == 2 * matrices * blocks
    assert all(key.endswith(("_lora_a", "_lora_b")) for key in lora.params)

    weights = np.random.default_rng(1).normal(size=wanted.shape) * padded.mask[..., None]
    weights = weights.astype(np.float32)

    def total(params):
        logits = lora.policy.apply(params, *padded)
        return jnp.sum(logits * weights), logits

    both = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, logits), gradient = both(lora.params)
    seen = padded.mask
    np.testing.assert_allclose(np.asarray(logits)[seen], wanted[seen], rtol=0, atol=1e-3)
    # With B = 0 nothing reaches A; moved away from there, everything is reached.
    assert all(float(jnp.abs(gradient[key]).max()) == 0 for key in gradient if key[-1] == "a")
    _, gradient = both({key: value + 0.1 for key, value in lora.params.items()})
    assert all(float(jnp.abs(part).max()) > 1e-4 for part in gradient.values())


def test_lora_is_a_low_rank_addition_scaled_by_alpha_over_rank(folders, padded):
    """Added to the weights by hand, it gives the same logits."""
    from advlib.trainer.llm import load_llm

    plain = load_llm(folders("llama"), lora_rank=None)
    lora = load_llm(folders("llama"), lora_rank=4, lora_alpha=6.0, dtype="float32")
    moved = {key: value + 0.05 for key, value in lora.params.items()}
    by_hand = dict(plain.params)
    for name in by_hand:
        if f"{name}_lora_a" in moved:
            a, b = moved[f"{name}_lora_a"], moved[f"{name}_lora_b"]
            added = np.tensordot(np.asarray(a), np.asarray(b), 1) * 6.0 / 4
            by_hand[name] = by_hand[name] + added.reshape(by_hand[name].shape)
    assert sum(f"{name}_lora_a" in moved for name in by_hand) == 14
    got = jax.jit(lora.policy.apply)(moved, *padded)
    wanted = jax.jit(plain.policy.apply)(by_hand, *padded)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-3)


def test_compute_dtype_is_that_of_the_weights(folders, padded):
    from advlib.trainer.llm import load_llm

    exact = load_llm(folders("qwen3"), lora_rank=None)
    wanted = reference_logits(folders("qwen3"), padded)[padded.mask]
    half = load_llm(folders("qwen3"), lora_rank=4)
    assert {str(x.dtype) for x in half.params.values()} == {"float32"}
    assert half.policy.init_cache(half.params, 1, 4).layers["layer_0"]["k"].dtype == jnp.bfloat16
    got = np.asarray(jax.jit(half.policy.apply)(half.params, *padded))[padded.mask]
    cast = jax.tree.map(lambda x: x.astype(jnp.bfloat16), exact.params)
    other = np.asarray(jax.jit(exact.policy.apply)(cast, *padded))[padded.mask]
    assert 1e-3 < np.abs(got - wanted).max() < 0.5
    np.testing.assert_array_equal(got, other)


def test_remat_changes_no_gradient(folders, padded):
    from advlib.trainer.llm import load_llm

    gradients = []
    for remat in (False, True):
        loaded = load_llm(folders("llama"), lora_rank=4, dtype="float32", remat=remat)

        def total(params, policy=loaded.policy):
            return jnp.sum(policy.apply(params, *padded)[..., 5])

        traced = jax.jit(jax.grad(total)).trace(loaded.params)
        assert ("remat" in str(traced.jaxpr)) == remat
        gradients.append(traced.lower().compile()(loaded.params))
    for key, value in gradients[0].items():
        np.testing.assert_allclose(value, gradients[1][key], rtol=1e-4, atol=1e-4)


def test_more_columns_than_the_model_takes_are_refused(folders):
    from advlib.trainer.llm import load_llm

    loaded = load_llm(folders("gemma2"), lora_rank=None)
    assert loaded.architecture.max_length == 24  # the window, where columns are not positions
    with pytest.raises(ValueError, match="takes 24 columns at most; got 25"):
        loaded.policy.init_cache(loaded.params, 1, 25)
    zeros = jnp.zeros((1, 30), jnp.int32)
    with pytest.raises(ValueError, match="takes 24 columns at most; got 30"):
        loaded.policy.apply(loaded.params, zeros, zeros, zeros == 0)
