"""Where questions come from, and what says how good an answer is."""

from __future__ import annotations

from advlib.trainer.environments._jsonl import jsonl_tasks, numeric_score
from advlib.trainer.environments._numeric import final_number
from advlib.trainer.environments._protocol import (
    Environment,
    Question,
    QuestionSet,
    Score,
    Scored,
    question_set,
    score_all,
)
from advlib.trainer.environments._reasoning_gym import reasoning_gym_tasks
from advlib.trainer.environments._split import Split, is_held_out

__all__ = [
    "Environment",
    "Question",
    "QuestionSet",
    "Score",
    "Scored",
    "Split",
    "final_number",
    "is_held_out",
    "jsonl_tasks",
    "numeric_score",
    "question_set",
    "reasoning_gym_tasks",
    "score_all",
]
