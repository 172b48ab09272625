"""What is trained on and what is examined on, told apart by the question itself.

Two random draws of small tasks share questions: with seeds alone a held-out set overlaps the
training set. A hash of the text decides once and for all draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from advlib.trainer.environments._protocol import Environment, Question

HELD_OUT_OF = 4  # one question in so many


class Split(NamedTuple):
    """Questions to train on and others to be examined on.

    Attributes:
        train: an environment.
        held_out: an environment that shares no question with ``train``.
    """

    train: Environment
    held_out: Environment


def is_held_out(text: str) -> bool:
    """Whether a question belongs to the held-out part: one in four does, by a hash of its text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % HELD_OUT_OF == 0


def divide(
    drawn: Iterable[Question], num_train: int, num_held_out: int, *, what: str
) -> tuple[list[Question], list[Question]]:
    """Sort questions into two lists of different ones, as many as wanted.

    Args:
        drawn: questions, endless or not; repeated texts are passed over.
        num_train: length of the first list.
        num_held_out: length of the second list.
        what: names the source in the error.

    Raises:
        ValueError: the source has too few different questions.
    """
    lists: tuple[list[Question], list[Question]] = ([], [])
    wanted = (num_train, num_held_out)
    texts: set[str] = set()
    fruitless = 0
    for question in drawn:
        if all(len(found) >= count for found, count in zip(lists, wanted, strict=True)):
            break
        part = is_held_out(question.text)
        if question.text not in texts and len(lists[part]) < wanted[part]:
            texts.add(question.text)
            lists[part].append(question)
            fruitless = 0
            continue
        # Were one of n questions left, ten n draws would miss it once in 20,000 times.
        fruitless += 1
        if fruitless > 10 * HELD_OUT_OF * (len(texts) + 100):
            break
    for found, count, name in zip(lists, wanted, ("to train on", "held out"), strict=True):
        if len(found) < count:
            raise ValueError(
                f"{what}: {count:,} different questions {name} are wanted, {len(found):,} were "
                "found"
            )
    return lists
