"""A policy that is a table, one row of logits a place: all that is made of it is known by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advlib import losses, trainer
from advlib.trainer import Batch, Policy, Samples
from advlib.trainer._responses import responses

PLACES, VOCAB, END = 9, 6, 1
WIDTH, NEW = 4, 5


def table_policy() -> Policy:
    """Logits of a token are those of its place in its own text, whatever the token is."""

    def apply(params: Any, tokens: Any, positions: Any, mask: Any) -> Any:
        return params["table"][positions]

    def apply_cached(params: Any, tokens: Any, positions: Any, mask: Any, cache: Any) -> Any:
        return params["table"][positions[:, -1]], cache

    return Policy(lambda key: TABLE, apply, lambda params, batch, length: (), apply_cached, VOCAB)


TABLE = {"table": np.random.default_rng(0).normal(size=(PLACES, VOCAB)).astype(np.float32)}


def log_table() -> np.ndarray:
    exact = TABLE["table"].astype(np.float64)
    return exact - np.log(np.exp(exact).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def sampled() -> tuple[list[int], Samples, Batch]:
    lengths = [1, 2, 3, 4] * 2
    prompts = trainer.pad_prompts([[2] * length for length in lengths], WIDTH)
    sample = trainer.make_sampler(table_policy(), max_prompt=WIDTH, max_new=NEW, end_tokens=(END,))
    samples = jax.tree.map(np.asarray, sample(TABLE, prompts, jax.random.key(0)))
    advantages = np.arange(1.0, 9.0, dtype=np.float32)
    return lengths, samples, trainer.rollout_batch(prompts, samples, advantages)


def step(batch: Batch, **options: Any) -> Any:
    update = trainer.make_train_step(table_policy().apply, SLOW, losses.policy_gradient, **options)
    _, metrics = update(trainer.init_state(jax.tree.map(jnp.array, TABLE), SLOW), batch)
    return metrics


SLOW = optax.sgd(1e-3)


def test_the_sampler_counts_places_from_0(sampled: tuple[list[int], Samples, Batch]) -> None:
    lengths, samples, _ = sampled
    wanted = np.zeros((8, NEW))
    for row, length in enumerate(lengths):
        for nth in range(samples.lengths[row]):
            # The token at place length + nth is drawn after the one before it.
            wanted[row, nth] = log_table()[length + nth - 1, samples.tokens[row, nth]]
    np.testing.assert_allclose(samples.log_probs, wanted, rtol=1e-5)
    assert len(set(samples.lengths.tolist())) > 1


def test_and_so_does_the_step(sampled: tuple[list[int], Samples, Batch]) -> None:
    assert float(step(sampled[2]).disagreement) < 1e-5


def test_a_sequence_that_is_not_trained_is_in_no_denominator(
    sampled: tuple[list[int], Samples, Batch],
) -> None:
    _, samples, batch = sampled
    actions = batch.actions.copy()
    actions[[2, 5]] = False
    told = step(batch._replace(actions=actions), denominator="sequences")
    assert float(told.sequences) == 6
    # On policy every ratio is 1: each token costs its advantage.
    sums = np.arange(1.0, 9.0) * samples.lengths
    np.testing.assert_allclose(told.loss, -np.delete(sums, [2, 5]).sum() / 6, rtol=1e-5)


def test_an_end_token_is_no_part_of_the_text_and_any_other_is() -> None:
    class Numbers:
        """Writes every id out, the end token too."""

        end_tokens = (END, 4)

        def decode(self, tokens: Any) -> str:
            return " ".join(map(str, tokens))

    tokens = np.array([[2, 3, END, 0], [2, 3, 5, 2], [4, 0, 0, 0], [2, END, 4, 0], [3, 0, 0, 0]])
    lengths = np.array([3, 4, 1, 3, 0], np.int32)
    samples = Samples(tokens, np.zeros(tokens.shape), lengths, np.zeros_like(lengths))
    assert responses(Numbers(), samples) == ("2 3", "2 3 5 2", "", "2 1", "")
