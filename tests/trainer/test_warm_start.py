"""A policy learns what its teacher says, mistakes included."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from advlib.trainer import ByteTokenizer, DecoderConfig, decoder, evaluate
from advlib.trainer.environments import Question, question_set
from advlib.trainer.warm_start import warm_start

POLICY = decoder(DecoderConfig(width=32, layers=1, heads=2, kv_heads=1, head_width=16, hidden=64))
TOKENIZER = ByteTokenizer()
SAID = {"a?": "xy", "bb?": "z", "c?": ""}


def taught(steps: int = 60, **options: object):
    return warm_start(
        POLICY,
        POLICY.init(jax.random.key(0)),
        TOKENIZER,
        lambda step: list(SAID.items()),
        steps=steps,
        learning_rate=2e-2,
        max_prompt=5,
        max_new=3,
        **options,
    )


@pytest.fixture(scope="module")
def learned():
    return taught()


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
    params = POLICY.init(jax.random.key(0))
    total, count = 0.0, 0
    for prompt, answer in SAID.items():
        asked = TOKENIZER.encode(prompt)
        tokens = np.array([[*asked, *answer.encode(), TOKENIZER.end_token]], np.int32)
        places = np.arange(tokens.shape[1])[None]
        logits = np.array(POLICY.apply(params, tokens, places, np.ones(tokens.shape, bool))[0])
        logits[:, list(TOKENIZER.forbidden)] = -np.inf
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for place in range(len(asked), tokens.shape[1]):
            total -= log_probs[place - 1, tokens[0, place]]
            count += 1
    assert learned.losses[0] == pytest.approx(total / count, rel=1e-5)


def test_the_given_parameters_are_not_changed():
    params = POLICY.init(jax.random.key(0))
    before = jax.tree.map(np.array, params)
    warm_start(
        POLICY, params, TOKENIZER, lambda s: list(SAID.items()), steps=1, max_prompt=5, max_new=3
    )
    jax.tree.map(np.testing.assert_array_equal, params, before)


def test_it_tells_each_step():
    said: list[int] = []
    taught(steps=3, told=lambda step, loss: said.append(step))
    assert said == [0, 1, 2]


def test_an_answer_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="responses must have 1 to 2 tokens"):
        warm_start(
            POLICY,
            POLICY.init(jax.random.key(0)),
            TOKENIZER,
            lambda step: [("a?", "xyz")],
            max_prompt=5,
            max_new=2,
        )


def test_a_loss_that_is_not_finite_stops_it():
    params = jax.tree.map(lambda array: array * np.nan, POLICY.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="warm start, step 0: the loss is nan"):
        warm_start(POLICY, params, TOKENIZER, lambda s: list(SAID.items()), max_prompt=5, max_new=3)
