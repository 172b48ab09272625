"""Questions to prompts, samples to text, and the greedy answers of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from advlib.trainer._options import count
from advlib.trainer._placement import place_batch
from advlib.trainer._policy import Params, Policy
from advlib.trainer._prompts import Prompts, pad_prompts
from advlib.trainer._sampler import Samples, make_sampler
from advlib.trainer._tokenizer import Tokenizer, check_vocabulary
from advlib.trainer.environments import Environment, Question, Scored, score_all

__all__ = ["Evaluated", "asked", "batches", "encode_prompts", "evaluate", "responses"]


class Evaluated(NamedTuple):
    """Greedy answers and what they are worth.

    Attributes:
        questions: (n,) what was asked.
        responses: (n,) what came back.
        scored: their rewards.
    """

    questions: tuple[Question, ...]
    responses: tuple[str, ...]
    scored: Scored


def asked(environment: Environment, indices: Sequence[int]) -> tuple[Question, ...]:
    """The questions at these places, one for each.

    Raises:
        TypeError: the environment gave something else than a Question.
        ValueError: it gave another number of them.
    """
    questions = tuple(environment.prompts(indices))
    for question in questions:
        if not isinstance(question, Question):
            raise TypeError(
                f"an environment's prompts must be Question; got {type(question).__name__}"
            )
    if len(questions) != len(indices):
        raise ValueError(
            f"an environment must give one question for each of {len(indices)} places; "
            f"got {len(questions)}"
        )
    return questions


def batches(
    questions: Sequence[Question], batch_size: int
) -> Iterator[tuple[int, list[Question], int]]:
    """Where each batch starts, its questions, and how many there are before it is filled up.

    The last one repeats its own: another shape would be another compilation.
    """
    for start in range(0, len(questions), batch_size):
        part = questions[start : start + batch_size]
        yield start, [part[row % len(part)] for row in range(batch_size)], len(part)


def encode_prompts(
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    max_prompt: int,
    *,
    rows: np.ndarray | None = None,
) -> Prompts:
    """Prompts of one width; ``rows`` as in :func:`pad_prompts`.

    Raises:
        ValueError: a prompt has no token or more than ``max_prompt``, or a token is not an id of
            the tokenizer; names the question.
    """
    encoded = [tokenizer.encode(question.text) for question in questions]
    for question, tokens in zip(questions, encoded, strict=True):
        if not 1 <= len(tokens) <= max_prompt:
            raise ValueError(
                f"question {question.id!r} has {len(tokens)} tokens; max_prompt is {max_prompt}"
            )
        ids = np.asarray(tokens)
        if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= tokenizer.vocab_size:
            raise ValueError(
                f"question {question.id!r}: the tokenizer must give ids in "
                f"[0, {tokenizer.vocab_size}); got {list(tokens)}"
            )
    return pad_prompts(encoded, max_prompt, pad_token=tokenizer.pad_token, rows=rows)


def responses(tokenizer: Tokenizer, samples: Samples) -> tuple[str, ...]:
    """Texts of samples, without the end token."""
    ends = set(tokenizer.end_tokens)
    texts = []
    for tokens, length in zip(np.asarray(samples.tokens), np.asarray(samples.lengths), strict=True):
        row = tokens[:length].tolist()
        texts.append(tokenizer.decode(row[:-1] if row and row[-1] in ends else row))
    return tuple(texts)


def evaluate(
    policy: Policy,
    params: Params,
    environment: Environment,
    *,
    tokenizer: Tokenizer,
    max_prompt: int,
    max_new: int,
    indices: Sequence[int] | None = None,
    batch_size: int = 256,
    mesh: Mesh | None = None,
) -> Evaluated:
    """Greedy answers to an environment's questions, scored.

    Args:
        policy: the policy.
        params: its parameters.
        environment: questions and their scorer.
        tokenizer: of the policy.
        max_prompt: P.
        max_new: N.
        indices: which questions. Default: all, in order.
        batch_size: questions answered at once; the last batch is filled up by repeating.
        mesh: devices that a batch is split over.

    Returns:
        :class:`Evaluated`, in the order of ``indices``.

    Raises:
        ValueError: there is no question, or a prompt is longer than ``max_prompt``.
    """
    count("batch_size", batch_size, 1)
    check_vocabulary(tokenizer, policy.vocab_size)
    places = range(len(environment)) if indices is None else [int(index) for index in indices]
    questions = asked(environment, places)
    if not questions:
        raise ValueError("there is no question to answer")
    # All of them before the first answer: the last may be the one that does not fit.
    encoded = [
        (encode_prompts(tokenizer, filled, max_prompt), wanted)
        for _, filled, wanted in batches(questions, batch_size)
    ]
    sample = make_sampler(
        policy,
        max_prompt=max_prompt,
        max_new=max_new,
        end_tokens=tokenizer.end_tokens,
        forbidden=tokenizer.forbidden,
        temperature=0.0,
        pad_token=tokenizer.pad_token,
        mesh=mesh,
    )
    texts: list[str] = []
    for prompts, wanted in encoded:
        placed = Prompts(*place_batch(tuple(prompts), mesh))
        texts += responses(tokenizer, sample(params, placed, jax.random.key(0)))[:wanted]
    return Evaluated(questions, tuple(texts), score_all(environment, questions, texts))
