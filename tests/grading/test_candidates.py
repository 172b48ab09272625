"""Candidates: who stands for an episode, under which label, who passed, what is told of them."""

from __future__ import annotations

import json
import logging
import pprint
from fractions import Fraction
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import advlib
from advlib.grading import (
    Candidate,
    CandidateGroup,
    Episode,
    LeftOut,
    Privileged,
    Trace,
    Turn,
    candidates,
    grading_messages,
)

CANARY = "assert f(3) == 9  # hidden-7d1f"


def trace(name: str, reward: float | None = 1.0, turns: int = 1, **more: Any) -> Trace:
    made = tuple(Turn(f"{name} turn {nth}", (f"{name} result {nth}",)) for nth in range(turns))
    return Trace(name, reward, clean=True, trainable=True, turns=made)._replace(**more)


def episode(name: str, *traces: Trace, **more: Any) -> Episode:
    return Episode(name, "g", "env", "the task", traces)._replace(**more)


def of_rewards(*rewards: float | None, group: str = "g", turns: int = 1) -> list[Episode]:
    return [
        episode(f"e{nth}", trace(f"t{nth}", reward, turns), group=group)
        for nth, reward in enumerate(rewards)
    ]


def by_trace(group: CandidateGroup) -> dict[str, Candidate]:
    return {candidate.trace: candidate for candidate in group.candidates}


class TestLabels:
    @pytest.mark.parametrize(
        ("group", "order"), [("group-7", [1, 0, 2, 3]), ("3f2b", [0, 3, 2, 1])]
    )
    def test_the_group_id_shuffles_them(self, group: str, order: list[int]) -> None:
        made = candidates(of_rewards(1, 0, 1, 0, group=group), mode="rewards")
        assert made.labels == ["c01", "c02", "c03", "c04"]
        assert [candidate.episode for candidate in made.candidates] == [f"e{at}" for at in order]

    def test_those_left_out_have_no_part_in_it(self) -> None:
        four = of_rewards(1, 0, 1, 0, group="group-7")
        failed = episode("x", trace("x", clean=False), group="group-7")
        made = candidates([four[0], failed, *four[1:]], mode="rewards")
        assert [candidate.trace for candidate in made.candidates] == ["t1", "t0", "t2", "t3"]

    def test_more_than_ninety_nine(self) -> None:
        assert candidates(of_rewards(*[0.0] * 101)).labels[-2:] == ["c100", "c101"]


class TestRepresentation:
    @pytest.mark.parametrize(
        ("traces", "represents"),
        [
            ([trace("a"), trace("b")], "a"),
            ([trace("a"), trace("b", info={"patch": "+"})], "b"),
            ([trace("a"), trace("b", info={"patch": None})], "b"),
            ([trace("a", info={"patch": "+"}), trace("b", info={"patch": "+"})], "a"),
            ([trace("a", clean=False, info={"patch": "+"}), trace("b")], "b"),
            ([trace("a", trainable=False, info={"patch": "+"}), trace("b")], "b"),
        ],
    )
    def test_the_first_with_a_patch_else_the_first(
        self, traces: list[Trace], represents: str
    ) -> None:
        (made,) = candidates([episode("e", *traces)], mode="rewards").candidates
        assert made.trace == represents
        assert made.turns[0].policy.startswith(represents)

    def test_every_trainable_trace_is_credited(self) -> None:
        crew = [trace("a"), trace("frozen", trainable=False), trace("b", clean=False)]
        (made,) = candidates([episode("e", *crew)], mode="rewards").candidates
        assert [each.id for each in made.traces] == ["a", "b"]

    def test_the_reward_of_a_sibling_decides_nothing(self) -> None:
        first = episode("e0", trace("a", 0.0), trace("b", 100.0))
        made = candidates([first, episode("e1", trace("c", 1.0))], mode="rewards")
        assert by_trace(made)["c"].passed
        assert not by_trace(made)["a"].passed

    @pytest.mark.parametrize(
        ("traces", "reason"),
        [
            ([], "no traces"),
            ([trace("x", trainable=False)], "not trainable"),
            ([trace("x", clean=False)], "failed"),
            ([trace("x", clean=False), trace("y", trainable=False)], "failed"),
            ([trace("x", None)], "no reward"),
        ],
    )
    def test_who_is_left_out_and_why(self, traces: list[Trace], reason: str) -> None:
        made = candidates([*of_rewards(0, 1), episode("x", *traces)], mode="rewards")
        assert made.left_out == (LeftOut("x", reason),)
        assert len(made.candidates) == 2

    def test_nobody_is_left(self) -> None:
        made = candidates([episode("e", trace("x", clean=False))], mode="rewards")
        assert (made.candidates, made.mixed, made.task) == ((), False, "the task")


class TestPassing:
    def passed(self, *rewards: float) -> list[bool]:
        made = by_trace(candidates(of_rewards(*rewards), mode="rewards"))
        return [made[f"t{nth}"].passed for nth in range(len(rewards))]

    @pytest.mark.parametrize(
        ("rewards", "passed"),
        [
            ((1, 1, 0, 0), (True, True, False, False)),
            ((0.9, 0.7, 0.2, 0.2), (True, True, False, False)),
            ((1, 1, 1), (False, False, False)),
            ((0.1, 0.1, 0.1), (False, False, False)),  # whose mean is less, in floats
            ((0.7,) * 6, (False,) * 6),
            ((0.0, 0.5, 1.0), (False, False, True)),  # equal to the mean is not above it
            ((0.3, 0.2, 0.1), (True, False, False)),  # nor is it where sums round
            ((-1, -2, -3), (True, False, False)),
            ((1e300, 0, -1e300), (True, False, False)),
            ((8.9e307, 0.0, -8.9e307), (True, False, False)),
            ((1.7e308, 0.0, -1.7e308), (True, False, False)),
            ((5e-324, 0.0), (True, False)),
            ((1e-300, 0.0), (True, False)),
            ((1.0,), (False,)),
        ],
    )
    def test_above_the_mean(self, rewards: tuple[float, ...], passed: tuple[bool, ...]) -> None:
        assert tuple(self.passed(*rewards)) == passed
        mixed = candidates(of_rewards(*rewards), mode="rewards").mixed
        assert mixed == (len(set(rewards)) > 1)

    tenths = st.lists(st.integers(-10, 10), min_size=1, max_size=9)

    @given(tenths)
    def test_as_exact_arithmetic_on_decimals_says(self, tenths: list[int]) -> None:
        mean = Fraction(sum(tenths), len(tenths))
        rewards = [each / 10 for each in tenths]
        assert self.passed(*rewards) == [each > mean for each in tenths]

    @given(tenths.filter(lambda drawn: len(drawn) > 1))
    def test_it_is_what_gar_credits(self, tenths: list[int]) -> None:
        rewards = [each / 10 for each in tenths]
        with jax.enable_x64(True):
            tiers = np.zeros(len(rewards), int)
            credit = np.asarray(advlib.gar(np.asarray(rewards), tiers).credit)
        assert self.passed(*rewards) == [bool(each > 0) for each in credit]

    def test_in_advantages_mode_all_have_and_rewards_are_not_read(self) -> None:
        made = candidates(of_rewards(1.0, None, float("nan"), 0.0), mode="advantages")
        assert made.passing == made.labels == ["c01", "c02", "c03", "c04"]
        assert made.left_out == ()


class TestElision:
    def turns(self, mode: Any, *rewards: float) -> list[list[str]]:
        made = by_trace(candidates(of_rewards(*rewards, turns=30), mode=mode))
        return [[turn.policy for turn in made[f"t{nth}"].turns] for nth, _ in enumerate(rewards)]

    def test_of_those_that_did_not_pass(self) -> None:
        passed, other = self.turns("rewards", 1.0, 0.0)
        assert "[turn elided]" not in passed
        assert other[9:21] == ["t1 turn 9", *["[turn elided]"] * 10, "t1 turn 20"]

    def test_nothing_in_advantages_mode(self) -> None:
        assert all("[turn elided]" not in told for told in self.turns("advantages", 1.0, 0.0))


@pytest.mark.parametrize(
    ("starts", "oldest"), [([5, 3, None], 3), ([None, None], None), ([0, 4], 0)]
)
def test_the_oldest_policy(starts: list[int | None], oldest: int | None) -> None:
    made = [
        each._replace(policy_start=start)
        for each, start in zip(of_rewards(*[1.0] * len(starts)), starts, strict=True)
    ]
    assert candidates(made, mode="rewards").policy_start == oldest


class TestPrivileged:
    group = candidates(of_rewards(1.0, 0.0), privileged={"hidden_tests.py": CANARY})

    def test_the_grader_alone_is_told(self) -> None:
        assert CANARY in grading_messages(self.group)[1]["content"]
        assert self.group.privileged["hidden_tests.py"] == CANARY

    @pytest.mark.parametrize(
        "show",
        [
            repr,
            str,
            "{}".format,
            pprint.pformat,
            lambda group: repr(group._asdict()),
            lambda group: repr([*group]),
            lambda group: json.dumps(group, default=repr),
            lambda group: logging.makeLogRecord({"msg": "%s", "args": (group,)}).getMessage(),
            lambda group: repr(group._replace(task="")),
        ],
    )
    def test_printing_does_not_tell(self, show: Any) -> None:
        told = show(self.group)
        assert "hidden-7d1f" not in told
        assert "hidden_tests.py" in told

    def test_nor_does_encoding(self) -> None:
        with pytest.raises(TypeError):
            msgspec.json.encode(self.group)

    def test_names_and_sizes(self) -> None:
        assert self.group.privileged.sizes() == {"hidden_tests.py": len(CANARY)}
        assert dict(self.group.privileged) == {"hidden_tests.py": CANARY}

    def test_a_text_that_is_none(self) -> None:
        with pytest.raises(TypeError, match="'tests' maps to bytes") as raised:
            Privileged({"tests": CANARY.encode()})  # type: ignore[dict-item]
        assert "hidden-7d1f" not in str(raised.value)


class TestErrors:
    def test_another_mode(self) -> None:
        with pytest.raises(ValueError, match="'rewards' or 'advantages'; got 'ranks'"):
            candidates(of_rewards(1), mode="ranks")  # type: ignore[arg-type]

    def test_no_episode(self) -> None:
        with pytest.raises(ValueError, match="needs an episode"):
            candidates([])

    def test_two_groups(self) -> None:
        with pytest.raises(ValueError, match="got 'g' and, in episode 'other', 'h'"):
            candidates([*of_rewards(1), episode("other", trace("x"), group="h")])

    def test_one_trace_id_twice(self) -> None:
        with pytest.raises(ValueError, match="'t0' stands twice"):
            candidates([*of_rewards(1, 0), episode("x", trace("t0"))])

    @pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
    def test_a_reward_that_is_no_measurement(self, reward: float) -> None:
        with pytest.raises(ValueError, match="trace 't1'"):
            candidates(of_rewards(1.0, reward), mode="rewards")

    def test_nor_that_of_a_trace_that_stands_for_nobody(self) -> None:
        two = episode("two", trace("t", reward=1.0), trace("u", reward=float("nan")))
        with pytest.raises(ValueError, match="rewards must"):
            candidates([two, episode("v", trace("v", reward=0.0))], mode="rewards")


def test_the_same_episodes_make_the_same_group() -> None:
    episodes = of_rewards(1, 0, 0.5, turns=25)
    assert candidates(episodes) == candidates(iter(episodes))
