"""What a trainer asks of a task: questions, and a reward for an answer, or why there is none.

A scorer that fails has measured nothing. Its sample is masked and counted; a zero would say that
the policy was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np

LARGEST = float(np.finfo(np.float32).max)


class Question(NamedTuple):
    """One prompt of an environment.

    Attributes:
        id: names the question in records; unlike any other of the environment.
        text: what the policy reads.
        answer: what the scorer compares with, in whatever form it wants.
        kind: name of the family that the question is of, for tables by family.
    """

    id: str
    text: str
    answer: Any = None
    kind: str = ""


class Score(NamedTuple):
    """What a scorer says about one response.

    Attributes:
        reward: a finite number; None where nothing was measured.
        reason: why nothing was measured; may say more about a reward too.
    """

    reward: float | None
    reason: str = ""


class Environment(Protocol):
    """Questions in a fixed order, and their scorer."""

    def __len__(self) -> int:
        """Number of questions."""

    def prompts(self, indices: Sequence[int]) -> list[Question]:
        """The questions at these places, each from 0 to the number of questions minus 1."""

    def score(self, question: Question, response: str) -> Score:
        """The reward of a response; may raise, which is not a measurement."""


class Scored(NamedTuple):
    """Rewards of a batch.

    Attributes:
        rewards: (B,) float64; 0 where not measured, which ``where`` says.
        where: (B,) booleans, True where the reward is a measurement.
        reasons: why not, by row; empty where it is one.
    """

    rewards: np.ndarray
    where: np.ndarray
    reasons: tuple[str, ...]


def score_all(
    environment: Environment, questions: Sequence[Question], responses: Sequence[str]
) -> Scored:
    """Score responses one by one; what cannot be scored is masked, with its reason.

    Args:
        environment: that the questions are from.
        questions: (B,) one a response; a question may come several times.
        responses: (B,) texts.

    Returns:
        A :class:`Scored`. An exception of the scorer, None, NaN, infinity and what is no number are
        not measurements. KeyboardInterrupt and the like pass through.

    Raises:
        ValueError: the numbers of questions and responses differ.
    """
    if len(questions) != len(responses):
        raise ValueError(
            f"questions and responses must be one to one; got {len(questions)} and {len(responses)}"
        )
    scores = [_one(environment, *pair) for pair in zip(questions, responses, strict=True)]
    return Scored(
        np.array([0.0 if s.reward is None else s.reward for s in scores], np.float64),
        np.array([s.reward is not None for s in scores], bool),
        tuple(s.reason if s.reward is None else "" for s in scores),
    )


def _one(environment: Environment, question: Question, response: str) -> Score:
    try:
        return as_score(environment.score(question, response))
    except Exception as error:
        return Score(None, f"{type(error).__name__}: {error}")


def as_score(value: Any) -> Score:
    """Read what a scorer returned.

    Args:
        value: a :class:`Score`, a number, a boolean, or None.

    Returns:
        A :class:`Score` whose reward is a float that float32 holds, or None with a reason.
    """
    given = value if isinstance(value, Score) else Score(value)
    reward: Any = given.reward
    if hasattr(reward, "item") and getattr(reward, "ndim", None) == 0:
        reward = reward.item()
    if reward is None:
        return Score(None, given.reason or "the scorer gave no reward")
    if not isinstance(reward, Real):
        return Score(None, f"the scorer gave {type(reward).__name__}, not a number")
    if not isfinite(reward):
        return Score(None, f"the scorer gave {float(reward)}")
    number = float(reward)
    if abs(number) > LARGEST:
        return Score(None, f"the scorer gave {number:g}, more than float32 holds")
    return Score(number, given.reason)


@dataclass(frozen=True)
class QuestionSet:
    """An environment from questions at hand and any function that scores.

    Attributes:
        questions: in their order.
        scorer: takes a question and a response; returns a number, a boolean, None or a
            :class:`Score`.
    """

    questions: tuple[Question, ...]
    scorer: Callable[[Question, str], Any]

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.questions)

    def prompts(self, indices: Sequence[int]) -> list[Question]:
        """The questions at these places."""
        return [self.questions[int(index)] for index in indices]

    def score(self, question: Question, response: str) -> Score:
        """What the scorer says; its exceptions come through."""
        return as_score(self.scorer(question, response))


def question_set(
    questions: Sequence[Question | str], scorer: Callable[[Question, str], Any]
) -> QuestionSet:
    """Make an environment of questions and a function.

    Args:
        questions: questions, or plain texts, whose place becomes their id.
        scorer: see :class:`QuestionSet`.

    Returns:
        A :class:`QuestionSet`.

    Raises:
        TypeError: an entry is neither.
        ValueError: there is none, or two have one id.
    """
    made = []
    for place, given in enumerate(questions):
        if isinstance(given, str):
            given = Question(str(place), given)
        if not isinstance(given, Question):
            raise TypeError(
                f"questions[{place}] must be a Question or a text; got {type(given).__name__}"
            )
        made.append(given)
    if not made:
        raise ValueError("questions must hold at least one; got none")
    seen: dict[str, int] = {}
    for place, question in enumerate(made):
        first = seen.setdefault(question.id, place)
        if first != place:
            raise ValueError(f"questions {first} and {place} have one id, {question.id!r}")
    return QuestionSet(tuple(made), scorer)
