"""The sampler: its distribution, its log-probabilities, its shapes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from advlib import trainer
from advlib.trainer import FINISH_REASONS, Policy, Samples
from tests.trainer.small import BYTES, TINY, params, ragged_prompts

STOP, LENGTH = (FINISH_REASONS.index(reason) for reason in ("stop", "length"))


def constant(logits: list[float]) -> Policy:
    """A policy that says the same whatever came before."""
    row = jnp.asarray(logits, jnp.float32)

    def apply(params: Any, tokens: Array, positions: Array, mask: Array) -> Array:
        return jnp.broadcast_to(row, (*tokens.shape, len(logits)))

    def apply_cached(
        params: Any, tokens: Array, positions: Array, mask: Array, cache: Array
    ) -> tuple[Array, Array]:
        return jnp.broadcast_to(row, (tokens.shape[0], len(logits))), cache

    def init_cache(params: Any, batch: int, length: int) -> Array:
        return jnp.zeros(())

    return Policy(lambda key: (), apply, init_cache, apply_cached, len(logits))


def drawn(policy: Policy, rows: int, tree: Any = (), new: int = 1, **options: Any) -> Samples:
    options.setdefault("end_tokens", (0,))
    sample = trainer.make_sampler(policy, max_prompt=1, max_new=new, **options)
    return sample(tree, trainer.pad_prompts([[0]] * rows, 1), jax.random.key(7))


def recomputed(config: Any, tree: Any, prompts: Any, s: Samples, **options: Any) -> np.ndarray:
    """Log-probabilities of the samples from the uncached path, as the training step has them."""
    tokens = np.concatenate([prompts.tokens, s.tokens], 1)
    width = prompts.tokens.shape[1]
    real = np.arange(width)[None] >= width - np.asarray(prompts.lengths)[:, None]
    mask = np.concatenate([real, np.asarray(s.mask)], 1)
    positions = np.maximum(np.cumsum(mask, 1) - 1, 0).astype(np.int32)
    logits = jax.jit(trainer.decoder(config).apply)(tree, tokens, positions, mask)[
        :, width - 1 : -1
    ]
    every = trainer.log_distribution(logits, **options)
    picked = np.take_along_axis(np.asarray(every), np.asarray(s.tokens)[..., None], -1)[..., 0]
    return np.where(s.mask, picked, 0)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_what_the_trainer_recomputes(temperature: float) -> None:
    tree = params(BYTES)
    prompts = ragged_prompts(16, 6, 256)
    sample = trainer.make_sampler(
        trainer.decoder(BYTES), max_prompt=6, max_new=12, end_tokens=(258, 10, 20, 30, 40),
        forbidden=(256, 257), temperature=temperature, pad_token=256,
    )  # fmt: skip
    s = sample(tree, prompts, jax.random.key(0))
    wanted = recomputed(BYTES, tree, prompts, s, temperature=temperature, forbidden=(256, 257))
    np.testing.assert_allclose(s.log_probs, wanted, rtol=0, atol=2e-5)
    assert np.asarray(s.log_probs)[np.asarray(s.mask)].max() < 0


def test_frequencies_are_those_of_the_distribution() -> None:
    logits = [0.0, 1.0, 2.0, 0.5, 9.0]
    for temperature in (1.0, 0.5):
        s = drawn(constant(logits), 20_000, forbidden=(4,), temperature=temperature)
        weights = np.exp(np.array(logits[:4]) / temperature)
        share = np.bincount(np.asarray(s.tokens)[:, 0], minlength=5) / 20_000
        np.testing.assert_allclose(share[:4], weights / weights.sum(), atol=0.015)
        assert share[4] == 0


def test_draws_of_one_row_are_independent() -> None:
    s = drawn(constant([0.0, 0.0, 0.0]), 400, new=40, end_tokens=(2,), forbidden=(2,)[:0])
    tokens = np.asarray(s.tokens)[np.asarray(s.lengths) > 20][:, :20]
    assert len(np.unique(tokens, axis=0)) == len(tokens)


def test_forbidden_tokens_are_never_sampled_and_greedy_heeds_them() -> None:
    for temperature in (0.0, 1.0):
        s = drawn(constant([1.0, 0.0, 50.0, 60.0]), 64, forbidden=(2, 3), temperature=temperature)
        assert np.asarray(s.tokens).max() <= 1
        assert np.isfinite(s.log_probs).all()


def test_greedy_takes_the_likeliest_and_says_its_log_prob_at_temperature_one() -> None:
    logits = np.array([0.0, 3.0, 1.0])
    s = drawn(constant(logits.tolist()), 2, temperature=0.0, new=3)
    np.testing.assert_array_equal(s.tokens, np.ones((2, 3)))
    np.testing.assert_allclose(s.log_probs, 3 - np.log(np.exp(logits).sum()), rtol=1e-6)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    policy = constant(np.log(probabilities).tolist())
    for top_p, kept in ((0.5, 1), (0.51, 2)):
        s = drawn(policy, 2000, top_p=top_p)
        assert set(np.unique(s.tokens)) == set(range(kept)), top_p
        wanted = np.log(probabilities)[np.asarray(s.tokens)]
        np.testing.assert_allclose(s.log_probs, wanted, atol=1e-5)  # before the cut


def test_every_end_token_ends_and_is_counted() -> None:
    s = drawn(constant([0.0, 0.0, 0.0, 2.0]), 500, new=5, end_tokens=(0, 2), pad_token=3)
    tokens, lengths = np.asarray(s.tokens), np.asarray(s.lengths)
    for row, length, finish in zip(tokens, lengths, np.asarray(s.finish), strict=True):
        ends = np.flatnonzero(np.isin(row[:length], (0, 2)))
        if finish == STOP:
            assert ends.tolist() == [length - 1]
        else:
            assert finish == LENGTH
            assert length == 5
            assert ends.size == 0
        assert (row[length:] == 3).all()
    assert set(np.asarray(s.finish)) == {STOP, LENGTH}
    assert (np.asarray(s.log_probs)[~np.asarray(s.mask)] == 0).all()
    np.testing.assert_array_equal(np.asarray(s.mask).sum(1), lengths)


def test_the_mask_comes_from_lengths_not_from_tokens() -> None:
    s = drawn(constant([5.0, 0.0]), 8, new=4, end_tokens=(1,), pad_token=0)
    cut = np.asarray(s.finish) == LENGTH
    assert cut.any()
    assert np.asarray(s.mask)[cut].all()  # though every token there is the padding token


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    tree = params(BYTES)
    sample = trainer.make_sampler(
        trainer.decoder(BYTES), max_prompt=6, max_new=8, end_tokens=(258,), forbidden=(256, 257)
    )
    prompts = ragged_prompts(8, 6, 256)
    whole = sample(tree, prompts, jax.random.key(3))
    order = np.array([5, 2, 7, 0, 1, 3, 6, 4])
    shuffled = sample(tree, trainer.Prompts(*(f[order] for f in prompts)), jax.random.key(3))
    np.testing.assert_array_equal(shuffled.tokens, np.asarray(whole.tokens)[order])
    np.testing.assert_allclose(shuffled.log_probs, np.asarray(whole.log_probs)[order], atol=1e-5)
    alone = sample(tree, trainer.Prompts(*(f[4:5] for f in prompts)), jax.random.key(3))
    np.testing.assert_array_equal(alone.tokens[0], whole.tokens[4])
    other = sample(tree, prompts, jax.random.key(4))
    assert (np.asarray(other.tokens) != np.asarray(whole.tokens)).any()


def test_nothing_is_compiled_again_from_step_to_step() -> None:
    policy, traces = trainer.decoder(TINY), []

    def counted(*arguments: Any) -> Any:
        traces.append(arguments[1].shape)
        return policy.apply_cached(*arguments)

    sample = trainer.make_sampler(
        policy._replace(apply_cached=counted), max_prompt=4, max_new=5, end_tokens=(1,)
    )
    for seed in range(4):
        sample(params(TINY, seed), ragged_prompts(3, 4, 11, seed), jax.random.key(seed))
    assert traces == [(3, 4), (3, 1)]


def test_sampling_stops_when_every_row_has_ended() -> None:
    policy, calls = constant([9.0, 0.0]), []

    def counted(*arguments: Any) -> Any:
        jax.debug.callback(lambda: calls.append(1))
        return policy.apply_cached(*arguments)

    s = drawn(policy._replace(apply_cached=counted), 2, new=500, temperature=0.0)
    jax.block_until_ready(s)
    jax.effects_barrier()
    assert s.tokens.shape == (2, 500)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end_tokens": ()}, "end_tokens must hold at least one id; got none"),
        ({"end_tokens": (1, 2), "forbidden": (0, 1)}, r"not be forbidden; these are both: \[1\]"),
        ({"end_tokens": (11,)}, r"end_tokens must lie in \[0, 11\); got 11"),
        ({"end_tokens": (1,), "temperature": -1.0}, "temperature"),
        ({"end_tokens": (1,), "top_p": 0.0}, "top_p must be above 0"),
        ({"end_tokens": (1,), "max_new": 0}, "max_new must be at least 1; got 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer.make_sampler(trainer.decoder(TINY), **{"max_prompt": 4, "max_new": 4, **options})


def test_prompts_of_another_width_are_refused() -> None:
    sample = trainer.make_sampler(trainer.decoder(TINY), max_prompt=4, max_new=2, end_tokens=(1,))
    with pytest.raises(
        ValueError, match=r"prompts must be \(B, 4\) for this sampler; got \(1, 5\)"
    ):
        sample(params(TINY), trainer.pad_prompts([[1]], 5), jax.random.key(0))


def test_prompts_that_do_not_fit_are_refused_not_cut() -> None:
    with pytest.raises(ValueError, match="prompts must have 1 to 2 tokens; row 1 has 3"):
        trainer.pad_prompts([[1], [1, 2, 3]], 2)
    with pytest.raises(ValueError, match="row 0 has 0"):
        trainer.pad_prompts([[]], 2)
