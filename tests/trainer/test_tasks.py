"""The six templates and their teacher."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from advlib.diagnostics import effective_batch
from advlib.text import fit_tfidf
from advlib.trainer.environments import is_held_out
from advlib.trainer.tasks import NAMES, lessons, template_tasks

RIGHT = {
    "Write 1234 backwards:": "4321",
    "Repeat 1234:": "1234",
    "Final digit of 1234:": "4",
    "Larger of 12 and 34:": "34",
    "Smallest digit of 4213:": "1",
    "Product of 123 times 45:": "5535",
}


@pytest.fixture(scope="module")
def split():
    return template_tasks(num_train=3000, num_held_out=600)


def test_answers_are_right(split):
    seen = Counter()
    for question in split.train.prompts(range(3000)):
        numbers = [int(word.strip(":")) for word in question.text.split() if word[0].isdigit()]
        right = {
            "backwards": lambda a: str(a)[::-1],
            "repeat": str,
            "final_digit": lambda a: str(a % 10),
            "larger": lambda a, b: str(max(a, b)),
            "smallest_digit": lambda a: min(str(a)),
            "product": lambda a, b: str(a * b),
        }[question.kind](*numbers)
        assert question.answer == right
        seen[question.kind] += 1
    assert seen == Counter(dict.fromkeys(NAMES, 500))


def test_the_wording_is_that_of_the_documentation(split):
    shapes = {"".join("0" if c.isdigit() else c for c in text) for text in RIGHT}
    found = {
        "".join("0" if c.isdigit() else c for c in q.text) for q in split.train.prompts(range(3000))
    }
    assert found == shapes


def test_train_and_held_out_share_nothing(split):
    train, held_out = (
        [q.text for q in part.prompts(range(len(part)))] for part in (split.train, split.held_out)
    )
    assert len(set(train)) == len(train)
    assert not set(train) & set(held_out)
    assert all(is_held_out(text) for text in held_out)


def test_reward_is_an_exact_match(split):
    question = split.train.prompts([0])[0]
    for response, reward in (
        (question.answer, 1.0),
        (f" {question.answer}\n", 1.0),
        (question.answer + "0", 0.0),
        ("", 0.0),
    ):
        assert split.train.score(question, response).reward == reward


def test_seeds_draw_other_questions():
    one, two = (template_tasks(num_train=100, num_held_out=10, seed=seed) for seed in (0, 1))
    assert one.train.prompts(range(100)) != two.train.prompts(range(100))
    again = template_tasks(num_train=100, num_held_out=10, seed=0)
    assert one.train.prompts(range(100)) == again.train.prompts(range(100))


def test_the_teacher_is_wrong_by_habit_and_as_often_as_said():
    taught = lessons(6000, np.random.default_rng(0))
    right: dict[str, list[bool]] = {}
    for lesson in taught:
        assert not is_held_out(lesson.question.text)
        right.setdefault(lesson.question.kind, []).append(lesson.answer == lesson.question.answer)
    shares = {kind: np.mean(values) for kind, values in right.items()}
    for kind in ("backwards", "repeat", "product"):
        assert shares[kind] == 1
    # One final digit in ten is the first digit too.
    for kind, share in (("final_digit", 0.46), ("larger", 0.4), ("smallest_digit", 0.4)):
        assert shares[kind] == pytest.approx(share, abs=0.06)
    wrong = {
        lesson.answer == max(lesson.question.id.split("/")[1])
        for lesson in taught
        if lesson.question.kind == "smallest_digit" and lesson.answer != lesson.question.answer
    }
    assert wrong == {True}


def test_a_teacher_without_mistakes():
    for lesson in lessons(500, np.random.default_rng(0), right_share=1.0):
        assert lesson.answer == lesson.question.answer


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"templates": ("nine",)}, "must be among backwards"),
        ({"templates": ()}, "one name or more"),
        ({"templates": ("repeat", "repeat")}, "each once"),
        ({"templates": ("repeat",), "num_train": 9000}, "repeat: 9,000 different questions"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        template_tasks(**options)


def test_a_share_outside_its_range_is_refused():
    with pytest.raises(ValueError, match="right_share must be from 0 to 1; got 2"):
        lessons(1, np.random.default_rng(0), right_share=2)


class TestEffectiveBatch:
    """Rewards as a warm-started policy earns them: by template alone."""

    def ratio(self, templates: tuple[str, ...], chances: dict[str, float]) -> float:
        part = template_tasks(num_train=256, num_held_out=8, templates=templates).train
        questions = part.prompts(range(256))
        rng = np.random.default_rng(0)
        rewards = np.array([rng.random(8) < chances[q.kind] for q in questions], float)
        texts = [question.text for question in questions]
        return effective_batch(rewards, fit_tfidf(texts).transform(texts), num_resamples=300).ratio

    def test_the_mixture_passes_the_gate(self):
        chances = dict(zip(NAMES, (0.97, 0.97, 0.4, 0.35, 0.3, 0.01), strict=True))
        assert self.ratio(NAMES, chances) >= 1.3

    def test_a_single_template_does_not(self):
        assert self.ratio(("larger",), {"larger": 0.4}) < 1.03
