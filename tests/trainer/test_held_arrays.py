"""A policy may hold arrays that are not trained; they are arguments of what is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.tree_util import Partial

from advlib.losses import policy_gradient
from advlib.trainer import (
    DecoderConfig,
    Policy,
    decoder,
    init_state,
    make_sampler,
    make_train_step,
    pad_prompts,
    rollout_batch,
)

CONFIG = DecoderConfig(vocab_size=32, width=16, layers=1, heads=2, kv_heads=1, head_width=8)
WHOLE = decoder(CONFIG)


def apply(base, params, tokens, positions, mask) -> Array:
    return WHOLE.apply(base, tokens, positions, mask) + params["shift"][None, None]


def init_cache(base, params, batch, length):
    return WHOLE.init_cache(base, batch, length)


def apply_cached(base, params, tokens, positions, mask, cache):
    logits, cache = WHOLE.apply_cached(base, tokens, positions, mask, cache)
    return logits + params["shift"][None], cache


def init(key) -> dict[str, Array]:
    return {"shift": jnp.zeros(CONFIG.vocab_size)}


BASE = WHOLE.init(jax.random.key(0))
HELD = Policy(
    init, Partial(apply, BASE), Partial(init_cache, BASE), Partial(apply_cached, BASE), 32
)
CLOSED = Policy(
    init,
    lambda *args: apply(BASE, *args),
    lambda *args: init_cache(BASE, *args),
    lambda *args: apply_cached(BASE, *args),
    32,
)


@pytest.fixture
def captured_arrays_warn() -> Iterator[None]:
    jax.config.update("jax_captured_constants_warn_bytes", 2000)
    yield
    jax.config.update("jax_captured_constants_warn_bytes", 2 * 10**9)


def update(policy: Policy):
    prompts = pad_prompts([[3, 4, 5], [6]], 4)
    params = policy.init(jax.random.key(1))
    sample = make_sampler(policy, max_prompt=4, max_new=3, end_tokens=[1])
    samples = sample(params, prompts, jax.random.key(2))
    optimizer = optax.sgd(0.1)
    step = make_train_step(policy.apply, optimizer, policy_gradient, micro_batches=2)
    batch = rollout_batch(prompts, samples, np.array([1.0, -1.0]))
    return samples, *step(init_state(params, optimizer), batch)


@pytest.mark.usefixtures("captured_arrays_warn")
def test_what_a_policy_holds_is_not_in_the_program_and_is_not_trained():
    before = jax.tree.map(np.asarray, BASE)
    _, state, metrics = update(HELD)
    assert set(state.params) == {"shift"}
    assert float(metrics.applied) == 1
    assert float(metrics.disagreement) < 1e-5
    assert np.abs(np.asarray(state.params["shift"])).max() > 0
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, BASE))


def test_held_or_closed_over_gives_the_same_numbers():
    held, closed = update(HELD), update(CLOSED)
    np.testing.assert_array_equal(held[0].tokens, closed[0].tokens)
    np.testing.assert_allclose(
        held[1].params["shift"], closed[1].params["shift"], rtol=1e-5, atol=1e-7
    )


@pytest.mark.usefixtures("captured_arrays_warn")
def test_what_a_policy_closes_over_is_in_the_program():
    with pytest.warns(UserWarning, match="captured"):
        update(CLOSED)
