"""Credit of every trace of every candidate, and what led there."""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import advlib
from advlib import grading
from advlib.grading import TraceCredit, parse_verdict, trace_credit
from advlib.grading._group import Candidate, CandidateGroup, Mode, Trace
from tests.grading.test_credit import WORKED, Worked
from tests.grading.verdicts import QUOTE, passed, turns_of, verdict

BY_STATISTICS = pytest.mark.parametrize("statistics", ["traces", "candidates"])


def trace(name: str, reward: float | None, *, clean: bool = True) -> Trace:
    return Trace(name, reward, clean, True, ())


def candidate(
    label: str, *rewards: float | None, first: int = 0, passed: bool = False
) -> Candidate:
    """A candidate with traces a1, a2, ...; `first` represents it."""
    traces = tuple(trace(f"{label}{nth}", reward) for nth, reward in enumerate(rewards, 1))
    speaker = traces[first]
    return Candidate(label, speaker.id, f"e-{label}", traces, speaker.reward, passed, ())


def group(*candidates: Candidate, mode: Mode = "rewards") -> CandidateGroup:
    rewards = {one.label: one.reward for one in candidates}
    measured = [reward for reward in rewards.values() if reward is not None]
    passing = [*rewards] if mode == "advantages" or not measured else passed(rewards)
    members = tuple(one._replace(passed=one.label in passing) for one in candidates)
    return CandidateGroup("g", mode, "task", members, len(set(rewards.values())) > 1)


def read(told: dict[str, Any]) -> grading.Verdict:
    labels = [entry["label"] for entry in told["candidates"]]
    return grading.check_citations(parse_verdict(told), turns_of(labels))


def advantages(credit: dict[str, TraceCredit]) -> dict[str, float]:
    return {name: one.advantage for name, one in credit.items()}


def close(got: dict[str, float], **wanted: float) -> None:
    assert list(got) == list(wanted)
    np.testing.assert_allclose(list(got.values()), list(wanted.values()), rtol=0, atol=1e-12)


TWELVE = group(candidate("a", 1, 1), candidate("b", 1), candidate("c", 0, 0))


def test_worked_example_12_over_traces_and_over_candidates() -> None:
    told = read(verdict("abc", ["a", "b"]))
    by_trace = trace_credit(told, TWELVE)
    close(advantages(by_trace), a1=0.48, a2=0.48, b1=0.24, c1=-0.6, c2=-0.6)
    assert sum(advantages(by_trace).values()) == pytest.approx(0, abs=1e-15)
    assert [one.scale for one in by_trace.values()] == [pytest.approx(1.2, abs=1e-15)] * 5
    by_candidate = trace_credit(told, TWELVE, statistics="candidates")
    close(
        advantages(by_candidate),
        a1=0.4444444444444444,
        a2=0.4444444444444444,
        b1=0.2222222222222222,
        c1=-0.6666666666666666,
        c2=-0.6666666666666666,
    )
    assert sum(advantages(by_candidate).values()) == pytest.approx(-2 / 9)


def test_worked_example_12_in_advantages_mode() -> None:
    twelve = group(*TWELVE.candidates, mode="advantages")
    told = read(verdict("abc", ["a", "bc"], margins=["large"]))
    for statistics in ("traces", "candidates"):
        got = trace_credit(told, twelve, statistics=statistics)
        third = 1 / 3
        close(advantages(got), a1=2 / 3, a2=2 / 3, b1=-third, c1=-third, c2=-third)
    assert [one.w for one in got.values()] == [1.0, 1.0, 0.25, 0.25, 0.25]


def group_of(example: Worked) -> tuple[grading.Verdict, CandidateGroup]:
    labels = "abcdefgh"[: len(example.advantages)]
    told = verdict(
        labels,
        example.ranking,
        confirmed=example.confirmed,
        unproven=example.unproven,
        suspected=example.suspected,
        margins=example.margins,
    )
    rewards = example.rewards or [None] * len(labels)
    members = [candidate(name, reward) for name, reward in zip(labels, rewards, strict=True)]
    return read(told), group(*members, mode="rewards" if example.rewards else "advantages")


@BY_STATISTICS
@pytest.mark.parametrize("name", WORKED)
def test_with_one_trace_each_credit_is_that_of_the_candidates(name: str, statistics: Any) -> None:
    example = WORKED[name]
    told, members = group_of(example)
    got = trace_credit(told, members, statistics=statistics, **example.options)
    rewards = example.rewards and {one.label: one.reward for one in members.candidates}
    wanted = grading.group_credit(told, rewards, members.mode, **example.options)
    assert [one.label for one in got.values()] == list(wanted)
    np.testing.assert_allclose(
        list(advantages(got).values()), list(wanted.values()), rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(list(wanted.values()), example.advantages, rtol=0, atol=1e-12)


def fields(name: str, field: str) -> list[Any]:
    return [getattr(one, field) for one in trace_credit(*group_of(WORKED[name])).values()]


def test_what_led_to_the_credit_in_rewards_mode() -> None:
    assert fields("1", "label") == list("abcdef")
    assert fields("1", "hack") == ["none"] * 5 + ["confirmed"]
    assert fields("1", "tier") == [0, 1, 1, None, None, None]
    assert fields("1", "w") == [1.0, 0.25, 0.25, None, None, None]
    assert fields("1", "f") == [1.0, 0.625, 0.625, None, None, None]
    assert fields("1", "scale") == [pytest.approx(4 / 3, abs=1e-15)] * 6
    assert fields("1", "margins") == [None] * 6
    evidence = fields("1", "evidence")
    assert evidence == [()] * 5 + [(grading.Evidence(1, QUOTE),)]


def test_without_a_rank_w_and_f_are_not_told_although_they_are_used() -> None:
    for name, unranked in (("6b", 1), ("7a", 1), ("7b", 2)):
        assert fields(name, "w")[unranked] is None
        assert fields(name, "f")[unranked] is None
        assert fields(name, "tier")[unranked] is None
    assert fields("6b", "w") == [1.0, None, None, None]  # a lone one has won
    assert fields("6b", "hack") == ["none", "suspected", "none", "none"]
    assert len(fields("6b", "evidence")[1]) == 1
    assert fields("6b", "scale") == [pytest.approx(8 / 7)] * 4


def test_scale_of_a_capped_and_of_an_empty_redistribution() -> None:
    assert fields("2a", "scale") == [1.5] * 4
    assert trace_credit(*group_of(WORKED["2b"]), lambda_max=1.2)["a1"].scale == 1.2
    assert fields("5", "scale") == [1.0] * 4
    assert fields("5", "advantage") == [0.0] * 4


def test_f_is_that_of_the_core_wherever_a_ranked_trace_is_above_the_mean() -> None:
    for name, example in WORKED.items():
        if example.rewards is None:
            continue
        told, members = group_of(example)
        got = list(trace_credit(told, members, f_min=0.3).values())
        arrays = grading.verdict_arrays(told, members.labels)
        core = advlib.gar(example.rewards, arrays.tiers, hacks=arrays.hacks, f_min=0.3)
        for row, one in enumerate(got):
            if one.f is not None:
                assert float(core.credit[row]) == pytest.approx(one.f, abs=1e-6), name
                assert float(core.win_rate[row]) == pytest.approx(one.w, abs=1e-6), name
        assert sum(one.f is not None for one in got) == sum(map(len, example.ranking)), name


def test_what_led_to_the_credit_in_advantages_mode() -> None:
    assert fields("9", "tier") == [1, 0, 2, 1]
    assert fields("9", "w") == [0.5, 1.0, 0.0, 0.5]
    assert fields("9", "margins") == [("slight", "large")] * 4
    assert fields("9", "f") == fields("9", "scale") == [None] * 4
    assert fields("9-null-margins", "margins") == [("slight",) * 3] * 4
    assert fields("9-no-margins", "margins") == [("slight",) * 3] * 4


def test_win_rates_of_advantages_mode_count_confirmed_hacks() -> None:
    name = "11-beside-a-hack"  # a, b, then c who hacked; d is in no tier
    assert fields(name, "w") == [1.0, 0.5, 0.0, None]
    assert fields(name, "tier") == [0, 1, None, None]
    assert fields(name, "hack") == ["none", "none", "confirmed", "suspected"]
    assert fields(name, "margins") == [("slight",)] * 4
    assert fields("10-hacks-only", "w") == [0.5] * 4
    assert fields("10-hacks-only", "margins") == [()] * 4
    assert fields("10-one-tier-and-a-hack", "w") == [2 / 3] * 3 + [0.0]


@pytest.mark.parametrize("name", [name for name in WORKED if WORKED[name].rewards is None])
def test_win_rates_are_those_of_the_core(name: str) -> None:
    told, members = group_of(WORKED[name])
    arrays = grading.verdict_arrays(told, members.labels)
    wanted = advlib.win_rate(arrays.tiers, hacks=arrays.hacks)
    got = [0.0 if w is None else w for w in fields(name, "w")]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


@BY_STATISTICS
def test_without_a_verdict_the_original_rewards_decide(statistics: Any) -> None:
    rewards = [0.9, 0.5, 0.1, 0.3]
    members = group(*(candidate(name, r) for name, r in zip("abcd", rewards, strict=True)))
    got = trace_credit(None, members, statistics=statistics, f_min=0.0, lambda_max=1.0)
    plain = np.asarray(advlib.group_mean(rewards, [0] * 4))
    np.testing.assert_allclose(list(advantages(got).values()), plain, rtol=0, atol=1e-7)
    close(advantages(got), a1=0.45, b1=0.05, c1=-0.35, d1=-0.15)  # 4c, and no hack drops
    for label, one in zip("abcd", got.values(), strict=True):
        assert one == TraceCredit(one.advantage, label)


def test_without_a_verdict_the_unit_of_the_mean_is_kept() -> None:
    members = group(candidate("a", 1, 0.5), candidate("b", 0))
    close(advantages(trace_credit(None, members)), a1=0.5, a2=0.0, b1=-0.5)
    by_candidate = trace_credit(None, members, statistics="candidates")
    close(advantages(by_candidate), a1=0.5, a2=0.0, b1=-0.5)
    members = group(candidate("a", 1, 1, 1), candidate("b", 0))
    close(advantages(trace_credit(None, members)), a1=0.25, a2=0.25, a3=0.25, b1=-0.75)
    by_candidate = trace_credit(None, members, statistics="candidates")
    close(advantages(by_candidate), a1=0.5, a2=0.5, a3=0.5, b1=-0.5)


@BY_STATISTICS
def test_without_a_verdict_advantages_mode_has_nothing_to_say(statistics: Any) -> None:
    members = group(candidate("a", 1.0, 0.0), candidate("b", 0.0), mode="advantages")
    got = trace_credit(None, members, statistics=statistics)
    assert got == {
        "a1": TraceCredit(0.0, "a"),
        "a2": TraceCredit(0.0, "a"),
        "b1": TraceCredit(0.0, "b"),
    }


@BY_STATISTICS
def test_a_group_that_is_not_mixed_gets_exact_zeros(statistics: Any) -> None:
    members = group(candidate("a", 0.1), candidate("b", 0.1), candidate("c", 0.1))
    assert (
        list(advantages(trace_credit(None, members, statistics=statistics)).values()) == [0.0] * 3
    )


def test_siblings_of_a_group_that_is_not_mixed() -> None:
    members = group(candidate("a", 1, 0), candidate("b", 1))
    close(advantages(trace_credit(None, members)), a1=1 / 3, a2=-2 / 3, b1=1 / 3)
    by_candidate = trace_credit(None, members, statistics="candidates")
    close(advantages(by_candidate), a1=0.0, a2=0.0, b1=0.0)


def test_the_representing_trace_decides_who_passed_and_siblings_keep_their_rewards() -> None:
    # By the first traces a and b pass; a's sibling failed, and c's sibling is the best of all.
    members = group(candidate("a", 1, 0), candidate("b", 1), candidate("c", 0, 1))
    told = read(verdict("abc", ["a", "b"]))
    got = trace_credit(told, members)
    # m 3/5; P: a1 and b1 by rank, c2 without one (w 1/2); f 1, .5, .75; λ 1.2/.9.
    close(advantages(got), a1=8 / 15, a2=-0.6, b1=4 / 15, c1=-0.6, c2=0.4)
    assert [one.w for one in got.values()] == [1.0, 1.0, 0.0, None, None]
    assert [one.tier for one in got.values()] == [0, 0, 1, None, None]
    swapped = group(candidate("a", 0, 1, first=1), candidate("b", 1), candidate("c", 1, 0, first=1))
    assert swapped.passing == ["a", "b"]
    got = trace_credit(told, swapped)
    close(advantages(got), a1=-0.6, a2=8 / 15, b1=4 / 15, c1=0.4, c2=-0.6)
    by_candidate = trace_credit(told, swapped, statistics="candidates")
    # m 2/3 over a2, b1, c2; P: a2, b1 and, by its own reward, c1; λ from the first two: 4/3.
    third = 1 / 3
    close(
        advantages(by_candidate),
        a1=-2 / 3,
        a2=4 / 9,
        b1=2 / 9,
        c1=4 / 3 * 0.75 * third,
        c2=-2 / 3,
    )


def test_all_traces_of_a_confirmed_hack_drop() -> None:
    members = group(candidate("a", 1), candidate("b", 1, 0.5), candidate("c", 0))
    got = trace_credit(read(verdict("abc", ["a"], confirmed="b")), members)
    close(advantages(got), a1=0.75, b1=-0.25, b2=-0.25, c1=-0.25)
    assert [one.hack for one in got.values()] == ["none", "confirmed", "confirmed", "none"]


@BY_STATISTICS
def test_a_trace_without_a_measurement_votes_nowhere(statistics: Any) -> None:
    told = read(verdict("abc", ["a", "b"]))
    wanted = trace_credit(told, group(candidate("a", 1), candidate("b", 1), candidate("c", 0)))
    for sibling in (trace("a2", None), trace("a2", 0.0, clean=False), trace("a2", math.nan)):
        a = candidate("a", 1)
        a = a._replace(traces=(*a.traces, sibling))
        members = group(a, candidate("b", 1), candidate("c", 0))
        if sibling.reward is not None and sibling.clean:
            with pytest.raises(ValueError, match="reward of trace 'a2' must be finite; got nan"):
                trace_credit(told, members)
            continue
        got = trace_credit(told, members, statistics=statistics)
        assert got.pop("a2") == wanted["a1"]._replace(advantage=0.0)
        np.testing.assert_allclose(
            list(advantages(got).values()), list(advantages(wanted).values()), rtol=0, atol=1e-15
        )


def test_a_candidate_whose_representing_trace_has_no_reward_is_not_measured() -> None:
    members = group(candidate("a", None, 5.0), candidate("b", 1), candidate("c", 0))
    got = trace_credit(read(verdict("abc", ["b"])), members)
    close(advantages(got), a1=0.0, a2=0.0, b1=0.5, c1=-0.5)
    close(advantages(trace_credit(None, members)), a1=0.0, a2=0.0, b1=0.5, c1=-0.5)
    nobody = group(candidate("a", None), candidate("b", None))
    assert list(advantages(trace_credit(None, nobody)).values()) == [0.0, 0.0]


def test_advantages_mode_reads_no_reward() -> None:
    told = read(verdict("ab", ["a", "b"], margins=["large"]))
    a = candidate("a", math.nan, None)
    a = a._replace(traces=(*a.traces, trace("a3", 0.0, clean=False)))
    got = trace_credit(told, group(a, candidate("b", math.inf), mode="advantages"))
    close(advantages(got), a1=0.5, a2=0.5, a3=0.5, b1=-0.5)


@pytest.mark.filterwarnings("error")
def test_one_candidate_alone_is_compared_with_nobody() -> None:
    told = read(verdict("a", ["a"]))
    assert trace_credit(told, group(candidate("a", 1), mode="advantages"))["a1"].advantage == 0.0
    assert trace_credit(None, group(candidate("a", 1)))["a1"].advantage == 0.0
    assert trace_credit(None, group()) == {}
    assert trace_credit(None, group(mode="advantages")) == {}


def test_groups_that_cannot_be_credited() -> None:
    fine = read(verdict("ab", ["a"]))
    members = group(candidate("a", 1), candidate("b", 0))
    stray = candidate("b", 0)._replace(trace="b9")
    for call, message in [
        (lambda: trace_credit(read(verdict("abc", ["a"])), members), "in one of the two only: 'c'"),
        (
            lambda: trace_credit(fine, group(candidate("a", 1), candidate("a", 0))),
            "trace ids must be unique in a group; 'a1' is there twice",
        ),
        (lambda: trace_credit(fine, group(candidate("a", 1), stray)), "b must be represented by"),
        (lambda: trace_credit(fine, members, statistics="rows"), "statistics must be one of"),  # type: ignore[arg-type]
        (lambda: trace_credit(None, members, f_min=-0.1), "f_min must be"),
        (lambda: trace_credit(None, members, lambda_max=0.5), "lambda_max must be"),
        (lambda: trace_credit(None, members._replace(mode="rank")), "mode must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.data())
def test_copies_of_a_trace_change_nothing_over_candidates(data: st.DataObject) -> None:
    rewards = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=6))
    labels = "abcdef"[: len(rewards)]
    single = group(*(candidate(name, r) for name, r in zip(labels, rewards, strict=True)))
    counts = [data.draw(st.integers(1, 3)) for _ in labels]
    several = group(
        *(candidate(n, *[r] * k) for n, r, k in zip(labels, rewards, counts, strict=True))
    )
    assert single.passing == several.passing
    told = read(verdict(labels, [[name] for name in single.passing]))
    wanted = trace_credit(told, single)
    got = trace_credit(told, several, statistics="candidates")
    assert len(got) == sum(counts)
    for one in got.values():
        known = wanted[f"{one.label}1"]
        assert one.advantage == pytest.approx(known.advantage, abs=1e-14)
        assert (one.w, one.f, one.tier) == (known.w, known.f, known.tier)
    by_trace = advantages(trace_credit(told, several))
    assert sum(by_trace.values()) == pytest.approx(0, abs=1e-14)
