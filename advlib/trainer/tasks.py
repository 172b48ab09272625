"""Six small tasks whose wording tells how hard they are, and a teacher who is often wrong.

Two are easy to learn from examples, one is out of reach for a small decoder, and on the other three
the teacher gives the right answer 40 % of the time and otherwise follows another rule, every time
the same. A policy that imitates the teacher then answers wrongly when greedy and rightly now and
then when it samples: what reinforcement learning needs to have something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from advlib.trainer.environments import Question, Split, is_held_out, question_set
from advlib.trainer.environments._split import divide

__all__ = ["NAMES", "TEMPLATES", "Lesson", "Template", "exact_match", "lessons", "template_tasks"]

RIGHT_SHARE = 0.4


class Template(NamedTuple):
    """One family of questions.

    Attributes:
        name: of the family.
        wording: of the question, with a field a number.
        digits: of each number.
        right: the right answer to the numbers.
        habit: what the teacher says where not right; None for a teacher who is always right.
    """

    name: str
    wording: str
    digits: tuple[int, ...]
    right: Callable[..., str]
    habit: Callable[..., str] | None = None


TEMPLATES = (
    Template("backwards", "Write {} backwards:", (4,), lambda a: str(a)[::-1]),
    Template("repeat", "Repeat {}:", (4,), str),
    Template("final_digit", "Final digit of {}:", (4,), lambda a: str(a)[-1], lambda a: str(a)[0]),
    Template(
        "larger", "Larger of {} and {}:", (2, 2), lambda *n: str(max(n)), lambda *n: str(min(n))
    ),
    Template(
        "smallest_digit",
        "Smallest digit of {}:",
        (4,),
        lambda a: min(str(a)),
        lambda a: max(str(a)),
    ),
    Template("product", "Product of {} times {}:", (3, 2), lambda a, b: str(a * b)),
)
"""Two that are mastered after the warm start, three that are half right, one that is hopeless."""
NAMES = tuple(template.name for template in TEMPLATES)
"""Names of the templates."""


class Lesson(NamedTuple):
    """A question and what the teacher answers.

    Attributes:
        question: never a held-out one.
        answer: the teacher's, right or not.
    """

    question: Question
    answer: str


def template_tasks(
    *,
    num_train: int = 4096,
    num_held_out: int = 1000,
    templates: Sequence[str] = NAMES,
    seed: int = 0,
) -> Split:
    """Questions from templates, as many of each, and their exact-match scorer.

    Whether a question is held out is decided by a hash of its text, so no draw, in training or in a
    lesson, can meet it.

    Args:
        num_train: questions to train on, all different.
        num_held_out: questions held out, all different.
        templates: names from :data:`TEMPLATES`; one alone makes a task whose wording tells nothing.
        seed: of the draws.

    Returns:
        A :class:`Split`; the reward is 1 where the response, stripped, is the answer, else 0.

    Raises:
        ValueError: an unknown or repeated name, or more questions than there are.
    """
    chosen = _chosen(templates)
    rng = np.random.default_rng([seed, 1])
    # Each template by itself, so that all of them get their share of both parts.
    parts: tuple[list[Question], list[Question]] = ([], [])
    for nth, template in enumerate(chosen):
        found = divide(
            _drawn(template, rng),
            *(len(range(nth, count, len(chosen))) for count in (num_train, num_held_out)),
            what=template.name,
        )
        for part, questions in zip(parts, found, strict=True):
            part.extend(questions)
    return Split(
        *(
            question_set([part[i] for i in rng.permutation(len(part))], exact_match)
            for part in parts
        )
    )


def lessons(
    count: int,
    rng: np.random.Generator,
    *,
    templates: Sequence[str] = NAMES,
    right_share: float = RIGHT_SHARE,
) -> list[Lesson]:
    """Examples to imitate.

    Args:
        count: lessons.
        rng: draws templates, numbers and the teacher's mistakes.
        templates: names from :data:`TEMPLATES`, drawn evenly.
        right_share: chance of the right answer where the teacher has a habit; at 1 sampling and
            greedy decoding agree, and nothing is left to reinforce.

    Returns:
        Lessons on questions that are not held out; a question may come again.

    Raises:
        ValueError: an unknown or repeated name, or a share outside [0, 1].
    """
    if not 0 <= right_share <= 1:
        raise ValueError(f"right_share must be from 0 to 1; got {right_share!r}")
    chosen = _chosen(templates)
    found: list[Lesson] = []
    while len(found) < count:
        template = chosen[rng.integers(len(chosen))]
        numbers = _numbers(template, rng)
        question = _question(template, numbers)
        if is_held_out(question.text):
            continue
        wrong = template.habit is not None and rng.random() >= right_share
        answer = template.habit(*numbers) if wrong and template.habit else question.answer
        found.append(Lesson(question, answer))
    return found


def exact_match(question: Question, response: str) -> float:
    """1 where the response is the answer, whitespace around it aside; else 0."""
    return float(response.strip() == question.answer)


def _chosen(names: Sequence[str]) -> list[Template]:
    known = {template.name: template for template in TEMPLATES}
    for name in names:
        if name not in known:
            raise ValueError(f"templates must be among {', '.join(known)}; got {name!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"templates must be one name or more, each once; got {list(names)}")
    return [known[name] for name in names]


def _drawn(template: Template, rng: np.random.Generator) -> Iterator[Question]:
    while True:
        yield _question(template, _numbers(template, rng))


def _numbers(template: Template, rng: np.random.Generator) -> tuple[int, ...]:
    """Different numbers of the given lengths, so that the two rules rarely agree."""
    while True:
        numbers = tuple(int(rng.integers(10 ** (d - 1), 10**d)) for d in template.digits)
        if len(set(numbers)) == len(numbers):
            return numbers


def _question(template: Template, numbers: tuple[int, ...]) -> Question:
    return Question(
        f"{template.name}/{'-'.join(map(str, numbers))}",
        template.wording.format(*numbers),
        template.right(*numbers),
        template.name,
    )
