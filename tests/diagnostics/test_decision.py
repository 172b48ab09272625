"""The decision rule, its alternatives and what a design can decide."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advlib import diagnostics as dx

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "decision.json").read_text())


def arms(both: int, wins: int, losses: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    treatment = np.repeat([1, 1, 0, 0], [both, wins, losses, neither])
    baseline = np.repeat([1, 0, 1, 0], [both, wins, losses, neither])
    return treatment, baseline


@pytest.mark.parametrize("case", VECTORS["half_width"], ids=lambda case: case["id"])
def test_half_width_vectors(case):
    got = dx.half_width(case["num_items"], alpha=case["alpha"], num_criteria=case["num_criteria"])
    assert got == pytest.approx(case["expected"], abs=2e-6)
    treatment, baseline = arms(case["num_items"], 0, 0, 0)
    decision = dx.paired_decision(
        treatment, baseline, alpha=case["alpha"], num_criteria=case["num_criteria"]
    )
    assert decision.half_width == got
    assert (decision.lower, decision.upper) == (-got, got)


def test_half_width_falls_with_items_and_rises_with_criteria():
    by_items = [dx.half_width(n) for n in (1, 2, 10, 1000)]
    by_criteria = [dx.half_width(100, num_criteria=k) for k in (1, 2, 3, 10)]
    assert by_items == sorted(by_items, reverse=True)
    assert by_criteria == sorted(by_criteria)
    assert dx.half_width(100, bounds=(-0.1, 1.0)) == pytest.approx(1.1 * dx.half_width(100))


def test_verdicts_at_the_published_size():
    # 33 net items of 1319 validate a margin of -0.05, 32 do not; -165 fail, -164 do not.
    for wins, losses, wanted in (
        (33, 0, "validated"),
        (32, 0, "inconclusive"),
        (100, 67, "validated"),
        (0, 165, "failed"),
        (0, 164, "inconclusive"),
        (0, 0, "inconclusive"),
    ):
        treatment, baseline = arms(500, wins, losses, 819 - wins - losses)
        decision = dx.paired_decision(treatment, baseline)
        assert decision.verdict == wanted, (wins, losses)
        assert decision.difference == pytest.approx((wins - losses) / 1319)
        assert decision.num_items == 1319


def test_a_bound_on_the_margin_decides_nothing():
    width = dx.half_width(8)
    scores = np.zeros(8)
    assert dx.paired_decision(scores, scores, margin=-width).verdict == "inconclusive"
    assert dx.paired_decision(scores, scores, margin=width).verdict == "inconclusive"
    beyond = math.nextafter(width, 1)
    assert dx.paired_decision(scores, scores, margin=-beyond).verdict == "validated"
    assert dx.paired_decision(scores, scores, margin=beyond).verdict == "failed"


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60),
    st.floats(-1.5, 1.5),
)
def test_swapping_the_arms_swaps_the_verdict(pairs, margin):
    treatment, baseline = map(list, zip(*pairs, strict=True))
    swap = {"validated": "failed", "failed": "validated", "inconclusive": "inconclusive"}
    one = dx.paired_decision(treatment, baseline, margin=margin)
    other = dx.paired_decision(baseline, treatment, margin=-margin)
    assert other.verdict == swap[one.verdict]
    assert (other.lower, other.upper) == (-one.upper, -one.lower)


def test_items_are_paired_by_id():
    ids = ["a", "b", "c", "d"]
    mixed = dx.paired_decision([1, 0, 1, 1], [0, 1, 0, 0], ids=(ids, ["d", "b", "c", "a"]))
    plain = dx.paired_decision([1, 0, 1, 1], [0, 1, 0, 0])
    assert mixed == plain
    other = dx.intervals([1, 1, 0, 0], [0, 0, 1, 1], ids=(ids, ids[::-1]))
    assert (other.only_treatment, other.only_baseline) == (0, 0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"baseline": [1, 0]}, ValueError, "got 3 and 2 scores"),
        ({"treatment": [], "baseline": []}, ValueError, "at least one item"),
        ({"treatment": [1, None, 0]}, ValueError, "treatment must be measured.*row 1"),
        ({"baseline": [1, 0, math.nan]}, ValueError, "baseline must be measured.*row 2"),
        ({"treatment": [1, 2, 0]}, ValueError, r"bounds \[0, 1\]; row 1: 2"),
        ({"treatment": ["1", "0", "1"]}, TypeError, "treatment must be numbers"),
        ({"treatment": [[1, 0, 1]]}, ValueError, "one dimension"),
        ({"ids": (["a", "b", "c"], ["a", "b", "d"])}, ValueError, "not in the baseline: 'c'"),
        ({"ids": (["a", "b", "b"], ["a", "b", "c"])}, ValueError, "'b' stands in rows 1 and 2"),
        ({"ids": (["a", "b"], ["a", "b", "c"])}, ValueError, "one an item, 3; got 2"),
        ({"ids": (["a", None, "b"], ["a", "b", "c"])}, ValueError, "row 1 has none"),
        ({"ids": ["a", "b", "c"]}, TypeError, "a pair"),
        ({"bounds": (1.0, 0.0)}, ValueError, "bounds"),
        ({"alpha": 0.0}, ValueError, "alpha"),
        ({"num_criteria": 0}, ValueError, "num_criteria"),
        ({"margin": math.nan}, ValueError, "margin"),
    ],
)
def test_what_does_not_pair_up_has_no_verdict(change, error, message):
    given = {"treatment": [1, 0, 1], "baseline": [0, 0, 1], **change}
    with pytest.raises(error, match=message):
        dx.paired_decision(given.pop("treatment"), given.pop("baseline"), **given)


def test_several_criteria_share_alpha():
    better, worse = arms(0, 1500, 0, 0), arms(0, 0, 1500, 0)
    even = arms(750, 0, 0, 750)
    of = {name: dx.Criterion(*pair) for name, pair in (("up", better), ("down", worse))}
    joint = dx.joint_decision({"up": of["up"], "even": dx.Criterion(*even, margin=-0.05)})
    assert joint.verdict == "inconclusive"
    assert joint.criteria["up"].verdict == "validated"
    assert joint.criteria["up"].half_width == dx.half_width(1500, num_criteria=2)
    assert dx.joint_decision(of).verdict == "failed"
    assert dx.joint_decision({"up": of["up"]}).verdict == "validated"
    with pytest.raises(ValueError, match=r"criterion 'bad': .*got 1500 and 2 scores"):
        dx.joint_decision({"up": of["up"], "bad": dx.Criterion(better[0], [1, 0])})
    with pytest.raises(ValueError, match="at least one"):
        dx.joint_decision({})


def test_required_items_is_the_first_that_decides():
    assert dx.required_items(-0.05) == 2952
    assert dx.required_items(-0.05, difference=0.02) == 1506
    for options in ({}, {"num_criteria": 3}, {"alpha": 0.01}, {"bounds": (-0.1, 1.0)}):
        for gap in (0.5, 0.1, 0.031):
            count = dx.required_items(-0.05, difference=gap - 0.05, **options)
            assert dx.half_width(count, **options) < gap
            assert count == 1 or dx.half_width(count - 1, **options) >= gap - 1e-12
    with pytest.raises(ValueError, match="differ from margin"):
        dx.required_items(-0.05, difference=-0.05)


@pytest.mark.parametrize(
    ("discordance", "chance"), [(0.10, 0.0023449), (0.15, 0.0104328), (0.20, 0.0226863)]
)
def test_a_true_tie_hardly_ever_validates(discordance, chance):
    power = dx.decision_power(1319, discordance=discordance)
    assert power.validated == pytest.approx(chance, abs=1e-6)
    assert (power.net_to_validate, power.net_to_fail) == (33, -165)
    assert power.validated + power.failed + power.inconclusive == pytest.approx(1)
    assert 0.29 < dx.decision_power(1319, difference=0.02, discordance=discordance).validated < 0.36


def test_power_is_that_of_the_enumerated_outcomes():
    n, win, loss = 6, 0.5, 0.2
    chances = {"validated": 0.0, "failed": 0.0, "inconclusive": 0.0}
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            ways = math.comb(n, wins) * math.comb(n - wins, losses)
            chance = ways * win**wins * loss**losses * (1 - win - loss) ** (n - wins - losses)
            pair = arms(0, wins, losses, n - wins - losses)
            chances[dx.paired_decision(*pair, margin=-0.6, alpha=0.3).verdict] += chance
    power = dx.decision_power(n, difference=0.3, discordance=0.7, margin=-0.6, alpha=0.3)
    assert min(chances["validated"], chances["inconclusive"]) > 0.05
    for name, chance in chances.items():
        assert getattr(power, name) == pytest.approx(chance, abs=1e-12)
    with pytest.raises(ValueError, match="discordance"):
        dx.decision_power(10, difference=0.3, discordance=0.2)


@pytest.mark.parametrize(
    ("discordant", "bernstein", "mcnemar"),
    [(66, 0.0338, 0.0126), (132, 0.0413, 0.0177), (264, 0.0520, 0.0248)],
)
def test_half_widths_of_the_alternatives(discordant, bernstein, mcnemar):
    seen = dx.intervals(*arms(600, discordant // 2, discordant // 2, 719 - discordant))
    half = {
        name: (interval.upper - interval.lower) / 2
        for name, interval in seen._asdict().items()
        if isinstance(interval, dx.Interval)
    }
    assert half["hoeffding"] == pytest.approx(0.0747894, abs=1e-6)
    assert half["empirical_bernstein"] == pytest.approx(bernstein, abs=1e-4)
    assert half["mcnemar"] == pytest.approx(mcnemar, abs=1e-4)
    wald = 1.959964 * math.sqrt(discordant) / 1319
    assert half["tango"] == pytest.approx(wald, rel=0.03)
    assert wald < half["betting"] < 0.7 * half["empirical_bernstein"]
    assert seen.mcnemar_p == 1.0


def test_tango_by_brute_force():
    """The profile likelihood is maximised over a grid; the closed form must find the same."""
    wins, losses, n = 9, 3, 40

    def rejected(delta):
        q = np.linspace(max(0, -delta), (1 - delta) / 2, 200_001)[1:-1]
        likelihood = wins * np.log(q + delta) + losses * np.log(q)
        likelihood += (n - wins - losses) * np.log(1 - 2 * q - delta)
        best = q[likelihood.argmax()]
        variance = n * (2 * best + delta * (1 - delta))
        return (wins - losses - n * delta) ** 2 > 1.959963985**2 * variance

    got = dx.tango_interval(wins, losses, n)
    for bound, step in ((got.lower, -1e-4), (got.upper, 1e-4)):
        assert rejected(bound + step)
        assert not rejected(bound - step)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (5, 0), (0, 5), (12, 0), (0, 12)])
def test_intervals_at_the_edges(wins, losses):
    seen = dx.intervals(*arms(0, wins, losses, 12 - wins - losses))
    mean = (wins - losses) / 12
    for name in ("hoeffding", "empirical_bernstein", "betting", "tango", "mcnemar"):
        interval = getattr(seen, name)
        assert interval.lower - 1e-9 <= mean <= interval.upper + 1e-9, name
    for interval in (seen.tango, seen.betting):
        assert -1 <= interval.lower <= interval.upper <= 1
    mirrored = dx.tango_interval(losses, wins, 12)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((-seen.tango.upper, -seen.tango.lower))


def test_exact_mcnemar_counts_coin_tosses():
    tosses = [math.comb(12, k) / 2**12 for k in range(13)]
    assert dx.exact_mcnemar(2, 10) == pytest.approx(2 * sum(tosses[:3]))
    assert dx.exact_mcnemar(10, 2) == dx.exact_mcnemar(2, 10)
    assert dx.exact_mcnemar(6, 6) == 1.0
    assert dx.exact_mcnemar(0, 0) == 1.0
    with pytest.raises(ValueError, match="negative"):
        dx.exact_mcnemar(-1, 3)


def test_scores_that_are_not_binary_have_no_counts():
    seen = dx.intervals([0.5, 0.25, 1.0], [0.0, 0.25, 0.5])
    assert seen.tango is seen.mcnemar is seen.mcnemar_p is seen.only_treatment is None
    wide = dx.intervals([-0.1, 1.0], [1.0, 1.0], bounds=(-0.1, 1.0))
    assert wide.difference == pytest.approx(-0.55)
    assert wide.betting.lower >= -1.1 - 1e-9
    # Differences of 0 and 1 do not make the scores binary.
    assert dx.intervals([1.5, 0.5], [0.5, 0.5], bounds=(0.0, 2.0)).tango is None


def test_intervals_hold_the_truth():
    """Finite-sample ones at least as often as promised, Tango's about as often."""
    rng = np.random.default_rng(5)
    held = dict.fromkeys(("hoeffding", "empirical_bernstein", "betting", "tango"), 0)
    repeats = 300
    for _ in range(repeats):
        kind = rng.choice(3, p=[0.15, 0.05, 0.8], size=200)
        seen = dx.intervals(kind == 0, kind == 1)
        for name in held:
            interval = getattr(seen, name)
            held[name] += interval.lower <= 0.1 <= interval.upper
    assert min(held["hoeffding"], held["empirical_bernstein"]) >= 0.99 * repeats
    assert held["betting"] >= 0.94 * repeats
    assert 0.92 * repeats <= held["tango"] <= 0.98 * repeats
