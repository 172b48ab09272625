"""A policy may hold arrays that are not trained; they are arguments of what is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
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


@pytest.fixture(scope="module")
def held():
    with captured_arrays_warn():  # which is an error here
        return update(HELD)


@pytest.fixture(scope="module")
def closed():
    with captured_arrays_warn(), pytest.warns(UserWarning, match="captured"):
        return update(CLOSED)


def test_what_a_policy_holds_is_not_in_the_program_and_is_not_trained(held):
    before = jax.tree.map(np.asarray, BASE)
    _, state, metrics = held
    assert set(state.params) == {"shift"}
    assert float(metrics.applied) == 1
    assert float(metrics.disagreement) < 1e-5
    assert np.abs(np.asarray(state.params["shift"])).max() > 0
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, BASE))


def test_held_or_closed_over_gives_the_same_numbers(held, closed):
    np.testing.assert_array_equal(held[0].tokens, closed[0].tokens)
    np.testing.assert_allclose(
        held[1].params["shift"], closed[1].params["shift"], rtol=1e-5, atol=1e-7
    )


def live(shape: tuple[int, ...]) -> int:
    gc.collect()
    return sum(array.shape == shape for array in jax.live_arrays())


def test_what_is_compiled_does_not_keep_what_a_policy_holds():
    """Frozen weights can be larger than everything else; they go when the policy goes."""
    base = {**BASE, "embed": jnp.concatenate([BASE["embed"], jnp.zeros((3, 16))])}
    shape = base["embed"].shape
    policy = HELD._replace(
        apply=Partial(apply, base),
        init_cache=Partial(init_cache, base),
        apply_cached=Partial(apply_cached, base),
        init=lambda key: {"shift": jnp.zeros(35)},
    )
    assert live(shape) == 1
    update(policy)
    assert live(shape) == 1
    del policy, base
    assert live(shape) == 0
