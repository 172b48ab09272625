"""A policy learns what its teacher says, mistakes included."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from advlib.trainer import ByteTokenizer, DecoderConfig, decoder, evaluate
from advlib.trainer.environments import Question, question_set
from advlib.trainer.warm_start import warm_start
from tests.trainer.numpy_decoder import log_probs, sequence_logits

CONFIG = DecoderConfig(width=32, layers=1, heads=2, kv_heads=1, head_width=16, hidden=64)
POLICY = decoder(CONFIG)
TOKENIZER = ByteTokenizer()
OPTIONS: dict[str, Any] = {"steps": 60, "learning_rate": 2e-2, "max_prompt": 5, "max_new": 3}
SAID = {"a?": "xy", "bb?": "z", "c?": ""}


class Taught(NamedTuple):
    start: Any
    params: Any
    losses: np.ndarray
    said: list[int]


@pytest.fixture(scope="module")
def learned() -> Taught:
    start, said = jax.jit(POLICY.init)(jax.random.key(0)), []
    done = warm_start(
        POLICY,
        start,
        TOKENIZER,
        lambda step: list(SAID.items()),
        **OPTIONS,
        told=lambda step, loss: said.append(step),
    )
    return Taught(start, done.params, done.losses, said)


def test_the_loss_falls(learned):
    assert learned.losses.shape == (60,)
    assert learned.losses[0] > 4
    assert learned.losses[-1] < 0.05


def test_it_answers_as_the_teacher_does(learned):
    questions = [Question(text, text, answer) for text, answer in SAID.items()]
    environment = question_set(questions, lambda q, r: r == q.answer)
    found = evaluate(
        POLICY, learned.params, environment, tokenizer=TOKENIZER, max_prompt=5, max_new=3
    )
    assert found.responses == ("xy", "z", "")
    assert found.scored.rewards.tolist() == [1, 1, 1]


def test_the_first_loss_is_the_likelihood_of_the_answers(learned):
    """By log-probabilities of each row alone, without padding."""
    exact = jax.tree.map(lambda array: np.asarray(array, np.float64), learned.start)
    total, count = 0.0, 0
    for prompt, answer in SAID.items():
        asked = TOKENIZER.encode(prompt)
        tokens = np.array([*asked, *answer.encode(), TOKENIZER.end_token])
        logits = sequence_logits(CONFIG, exact, tokens)
        told = log_probs(logits, forbidden=TOKENIZER.forbidden)
        for place in range(len(asked), len(tokens)):
            total -= told[place - 1, tokens[place]]
            count += 1
    assert learned.losses[0] == pytest.approx(total / count, rel=1e-5)


def test_the_given_parameters_are_not_changed(learned):
    before = jax.jit(POLICY.init)(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, learned.start, before)


def test_it_tells_each_step(learned):
    assert learned.said == list(range(60))


def test_an_answer_that_is_too_long_is_refused():
    options = {**OPTIONS, "max_new": 2}
    with pytest.raises(ValueError, match="responses must have 1 to 2 tokens"):
        warm_start(POLICY, {}, TOKENIZER, lambda step: [("a?", "xyz")], **options)


def test_a_loss_that_is_not_finite_stops_it(learned):
    params = jax.tree.map(lambda array: array * np.nan, learned.start)
    with pytest.raises(ValueError, match="warm start, step 0: the loss is nan"):
        warm_start(POLICY, params, TOKENIZER, lambda s: list(SAID.items()), **OPTIONS)
