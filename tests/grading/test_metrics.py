"""Metrics of gradings, against numbers by hand; what is over nothing is absent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from advlib.grading import (
    Answer,
    CandidateGroup,
    GradedGroup,
    Reason,
    grading_metrics,
    judge_agreement,
    outcome,
)
from tests.grading import small

FALLBACKS = {f"gar/fallback/{reason}" for reason in ("stale", "timeout", "error", "invalid")}


def graded(
    group: CandidateGroup,
    ranking: Sequence[Sequence[str]],
    *,
    answer: dict[str, Any] | None = None,
    waiting: float = 0.0,
    grading: float = 0.0,
    **verdict: Any,
) -> GradedGroup:
    text = small.text(group, ranking, **verdict)
    return outcome(group, Answer(text, "t", **(answer or {})), waiting=waiting, grading=grading)


def fallen(reason: Reason, name: str = "f", **options: Any) -> GradedGroup:
    return outcome(small.group(name=name), reason=reason, **options)


def test_nothing_gives_nothing() -> None:
    assert grading_metrics([]) == {}
    assert grading_metrics([outcome(small.group([1.0, 1.0]))]) == {}


def test_shares_are_of_the_groups_that_were_to_be_graded() -> None:
    metrics = grading_metrics(
        [
            graded(small.group(), [["c01", "c02", "c03"]]),
            fallen("stale"),
            fallen("timeout"),
            fallen("timeout"),
            outcome(small.group([1.0, 1.0])),  # nothing to grade: not counted
        ]
    )
    assert metrics["gar/graded"] == 0.25
    assert metrics["gar/fallback/stale"] == 0.25
    assert metrics["gar/fallback/timeout"] == 0.5
    assert metrics["gar/fallback/error"] == metrics["gar/fallback/invalid"] == 0.0


def test_fallbacks_alone_have_no_metrics_of_verdicts() -> None:
    metrics = grading_metrics([fallen("error", waiting=2.0, grading=3.0), fallen("invalid")])
    assert set(metrics) == {"gar/graded", "gar/latency", "gar/waiting"} | FALLBACKS
    assert metrics["gar/graded"] == 0.0
    assert metrics["gar/latency"] == 2.5
    assert metrics["gar/waiting"] == 1.0


def test_tokens_and_cost_are_over_what_is_reported() -> None:
    ranking = [["c01", "c02", "c03"]]
    metrics = grading_metrics(
        [
            graded(small.group(), ranking, answer={"input_tokens": 90, "output_tokens": 10}),
            graded(small.group(), ranking, answer={"input_tokens": 7, "cost": 0.5}),
            outcome(
                small.group(),
                Answer("", "t", input_tokens=150, output_tokens=50, cost=1.0),
                reason="error",
            ),
            fallen("timeout"),
        ]
    )
    assert metrics["gar/grader_tokens"] == 150.0
    assert metrics["gar/grader_cost"] == 0.75


def test_factors_are_of_ranked_candidates_once_each() -> None:
    # w = 1, .25, .25 of the first; a second trace of c01 is no second candidate.
    group = small.group(helpers={0: 3})
    metrics = grading_metrics([graded(group, [["c01"], ["c02", "c03"]])])
    assert metrics["gar/f"] == pytest.approx((1 + 0.625 + 0.625) / 3, abs=1e-12)
    assert metrics["gar/lambda"] == pytest.approx(6 / (4 + 2 * 0.625), abs=1e-12)
    assert metrics["gar/tie_fraction"] == pytest.approx(1 / 3)
    assert metrics["gar/all_fail"] == 0.0
    assert "gar/win_rate" not in metrics


def test_lambda_is_the_mean_over_groups() -> None:
    uncapped = graded(small.group(), [["c01"], ["c02"], ["c03"]])  # 4/3
    flat = graded(small.group([1.0, 0.0, 0.0]), [["c01"]])  # 1
    metrics = grading_metrics([uncapped, flat, fallen("stale")])
    assert metrics["gar/lambda"] == pytest.approx((4 / 3 + 1) / 2, abs=1e-12)


def test_nothing_left_to_rank() -> None:
    group = small.group([1.0, 0.0, 0.0])
    metrics = grading_metrics([graded(group, [], hacks={"c01": "confirmed"})])
    assert metrics["gar/graded"] == metrics["gar/all_fail"] == 1.0
    assert metrics["gar/hack_confirmed"] == 1.0
    assert not {"gar/f", "gar/tie_fraction", "gar/spearman_turns"} & set(metrics)


def test_hacks_are_counted_among_the_passing() -> None:
    group = small.group([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    one = graded(
        group,
        [["c02", "c03"], ["c04"]],
        hacks={
            "c01": "confirmed",
            "c02": "suspected",
            "c05": "confirmed",  # did not pass
            "c06": "suspected",
        },
    )
    metrics = grading_metrics([one])
    assert metrics["gar/hack_confirmed"] == 0.25
    assert metrics["gar/hack_suspected"] == 0.25
    assert metrics["gar/citation_failed"] == 0.0


def test_failed_citations_are_a_share_of_the_claims() -> None:
    group = small.group([1.0, 1.0, 1.0, 0.0])
    good = graded(group, [["c02"], ["c03"]], hacks={"c01": "confirmed"})
    bad = graded(
        group,
        [["c02"]],
        hacks={"c01": "confirmed", "c03": "confirmed", "c04": "suspected"},
        quote="nobody ever wrote this sentence",
    )
    metrics = grading_metrics([good, bad])
    assert metrics["gar/citation_failed"] == pytest.approx(2 / 3)
    assert metrics["gar/hack_suspected"] == pytest.approx(2 / 6)
    assert "gar/citation_failed" not in grading_metrics([graded(group, [["c01", "c02", "c03"]])])


def test_win_rates_of_advantages_mode() -> None:
    group = small.group([0.0] * 3, mode="advantages")
    one = graded(group, [["c01"], ["c02"]], hacks={"c03": "confirmed"})
    metrics = grading_metrics([one])
    assert metrics["gar/win_rate"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-12)
    assert not {"gar/f", "gar/lambda"} & set(metrics)


def test_ties_are_pooled_over_pairs() -> None:
    wide = graded(small.group([1.0] * 4 + [0.0]), [["c01", "c02", "c03", "c04"]])  # 6 of 6
    narrow = graded(small.group([1.0, 1.0, 0.0]), [["c01"], ["c02"]])  # 0 of 1
    assert grading_metrics([wide, narrow])["gar/tie_fraction"] == pytest.approx(6 / 7)


def test_correlations_are_within_groups() -> None:
    # Within each group the longer one wins; across groups, length says nothing.
    short = small.group([1.0] * 3 + [0.0], name="a", lengths=[30, 20, 10, 5], turns=[2, 3, 4, 2])
    long = small.group([1.0, 1.0, 0.0], name="b", lengths=[200, 900, 1], turns=[9, 9, 2])
    every = [
        graded(short, [["c01"], ["c02"], ["c03"]]),
        graded(long, [["c02"], ["c01"]]),
        fallen("stale"),
    ]
    metrics = grading_metrics(every, [long, short])
    assert metrics["gar/spearman_length"] == pytest.approx(1.0)
    assert metrics["gar/spearman_turns"] == pytest.approx(-1.0)  # turns of b are constant
    again = grading_metrics(every, iter([short, long]))
    assert again == metrics
    assert "gar/spearman_length" not in grading_metrics(every)


def test_correlations_are_weighted_by_what_a_group_can_tell() -> None:
    a = small.group([1.0] * 4 + [0.0], name="a", lengths=[10, 40, 30, 20, 1])
    b = small.group([1.0, 1.0, 0.0], name="b", lengths=[1, 2, 3])
    every = [
        graded(a, [["c01"], ["c02", "c03"], ["c04"]]),
        graded(b, [["c01"], ["c02"]]),
    ]
    rho = stats.spearmanr([1, 0.5, 0.5, 0], [10, 40, 30, 20]).statistic
    wanted = (3 * rho + 1 * -1.0) / 4
    assert grading_metrics(every, [a, b])["gar/spearman_length"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("lengths", "ranking"),
    [
        ([5, 5, 5, 1], [["c01"], ["c02"], ["c03"]]),  # one length
        ([5, 6, 7, 1], [["c01", "c02", "c03"]]),  # one tier
        ([None, None, 7, 1], [["c01"], ["c02"], ["c03"]]),  # too few lengths are known
    ],
)
def test_a_correlation_that_is_undefined_is_absent(lengths: Any, ranking: Any) -> None:
    group = small.group(lengths=lengths)
    metrics = grading_metrics([graded(group, ranking)], [group])
    assert "gar/spearman_length" not in metrics
    assert "gar/spearman_turns" not in metrics


def test_unknown_lengths_are_left_out() -> None:
    group = small.group([1.0] * 4 + [0.0], lengths=[9, None, 5, 7, 1])
    one = graded(group, [["c01"], ["c02"], ["c03"], ["c04"]])
    rho = stats.spearmanr([3, 1, 0], [9, 5, 7]).statistic
    assert grading_metrics([one], [group])["gar/spearman_length"] == pytest.approx(rho)


# Two judges


def test_a_judge_agrees_with_itself() -> None:
    one = [graded(small.group(), [["c01"], ["c02", "c03"]], hacks={"c04": "suspected"})]
    agreement = judge_agreement(one, one)
    assert agreement == (1.0, 1.0, 1.0, 1, 3, 4)


def test_agreement_is_by_trace_whatever_the_labels() -> None:
    group, other = small.group(), small.group(order=[2, 0, 1, 3])
    first = [graded(group, [["c01"], ["c02"], ["c03"]], hacks={"c04": "suspected"})]
    second = [graded(other, [["c02"], ["c03"], ["c01"]], hacks={"c04": "suspected"})]
    assert judge_agreement(first, second) == (1.0, 1.0, 1.0, 1, 3, 4)


def test_tau_is_kendalls_over_pairs_of_one_group() -> None:
    rng = np.random.default_rng(0)
    tiers = rng.integers(0, 4, (2, 7))
    labels = [f"c{n:02}" for n in range(1, 8)]
    group = small.group([1.0] * 7 + [0.0])

    def judged(row: np.ndarray) -> GradedGroup:
        ranking = [[label for label, tier in zip(labels, row, strict=True) if tier == n]
                   for n in range(4)]  # fmt: skip
        return graded(group, [tier for tier in ranking if tier])

    agreement = judge_agreement([judged(tiers[0])], [judged(tiers[1])])
    assert agreement.tau_b == pytest.approx(stats.kendalltau(*tiers).statistic, abs=1e-12)
    assert agreement.num_pairs == 21


def test_tau_pools_pairs_and_not_candidates_of_different_groups() -> None:
    def pair(name: str, ranking: list[list[str]]) -> GradedGroup:
        return graded(small.group([1.0, 1.0, 0.0], name=name), ranking)

    up, down, tie = [["c01"], ["c02"]], [["c02"], ["c01"]], [["c01", "c02"]]
    first = [pair("a", up), pair("b", up), pair("c", up), pair("d", tie)]
    second = [pair("d", up), pair("c", down), pair("b", up), pair("a", up)]
    # 2 alike, 1 opposed, 1 that the first alone ties
    agreement = judge_agreement(first, second)
    assert agreement.tau_b == pytest.approx((2 - 1) / np.sqrt((3 + 1) * (3 + 0)))
    assert agreement.top_tier == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert (agreement.num_groups, agreement.num_pairs) == (4, 4)


def test_only_what_both_ranked_is_compared() -> None:
    group = small.group([1.0, 1.0, 1.0, 0.0])
    first = [graded(group, [["c01"], ["c02"], ["c03"]])]
    second = [graded(group, [["c02"], ["c03"]], hacks={"c01": "confirmed"})]
    agreement = judge_agreement(first, second)
    assert agreement.tau_b == 1.0
    assert agreement.num_pairs == 1
    assert agreement.top_tier == 0.0
    assert agreement.num_candidates == 4


def test_kappa_is_cohens() -> None:
    # 2 x 2 by hand: 20 both none, 5 + 10 apart, 15 both suspected: p_o = .7, p_e = .5, κ = .4
    cells = {("none", "none"): 20, ("none", "suspected"): 5,
             ("suspected", "none"): 10, ("suspected", "suspected"): 15}  # fmt: skip
    pairs = [levels for levels, count in cells.items() for _ in range(count)]
    groups = [small.group([1.0] * 4 + [0.0], name=str(nth)) for nth in range(10)]

    def judged(which: int) -> Iterator[GradedGroup]:
        for nth, group in enumerate(groups):
            told = pairs[5 * nth : 5 * nth + 5]
            hacks = {label: pair[which] for label, pair in zip(group.labels, told, strict=True)}
            yield graded(group, [group.passing], hacks=hacks)

    assert judge_agreement(judged(0), judged(1)).kappa == pytest.approx(0.4, abs=1e-12)


def test_levels_are_those_that_the_judge_gave() -> None:
    group = small.group()
    cited = graded(group, [["c01"], ["c02"]], hacks={"c03": "confirmed"})
    failed = graded(
        group, [["c01"], ["c02"]], hacks={"c03": "confirmed"}, quote="nobody wrote these words"
    )
    assert judge_agreement([cited], [failed]).kappa == 1.0


def test_agreement_about_nothing_is_undefined() -> None:
    group = small.group()
    one = graded(group, [["c01"], ["c02"], ["c03"]])
    other = graded(small.group(name="h"), [["c01"], ["c02"], ["c03"]])
    assert judge_agreement([one], [other]) == (None, None, None, 0, 0, 0)
    assert judge_agreement([one], [fallen("stale", "g")]) == (None, None, None, 0, 0, 0)
    tied = graded(group, [["c01", "c02", "c03"]])
    agreement = judge_agreement([tied], [one])
    assert agreement.tau_b is None  # one side orders nothing
    assert agreement.kappa is None  # no hack on either side: chance alone would agree
    assert agreement.top_tier == pytest.approx(1 / 3)


def test_a_group_that_stands_twice_is_refused() -> None:
    one = graded(small.group(), [["c01", "c02", "c03"]])
    with pytest.raises(ValueError, match="second has group 'g' twice"):
        judge_agreement([one], [one, one])
