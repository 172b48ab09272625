"""Where questions come from, and what says how good an answer is."""

from __future__ import annotations

from advlib.trainer.environments._protocol import (
    Environment,
    Question,
    QuestionSet,
    Score,
    Scored,
    question_set,
    score_all,
)

__all__ = [
    "Environment",
    "Question",
    "QuestionSet",
    "Score",
    "Scored",
    "question_set",
    "score_all",
]
