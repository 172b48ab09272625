"""Gates and scores to a word: the source's own numbers, and every way to end early."""

from __future__ import annotations

import numpy as np
import pytest

from advlib.diagnostics import GS1_CHECKS, effective_batch_ratio
from advlib.experiments import Tried, conclude, offline_gate
from advlib.experiments._checking import START
from advlib.experiments._folder import plain
from advlib.experiments.gate import (
    check_of,
    is_offline,
    kernel_arm,
    known_metrics,
    offline_names,
    planned_metrics,
)
from advlib.experiments.verdict import compare, decide, told_decision
from tests.experiments import made

OFFLINE = [check for check in GS1_CHECKS if is_offline(check.metric)]
GOOD = {
    "preflight": {"passed": True},
    "forced": {"passed": True},
    "calibration": {"gate": {"passed": True}},
    "pilot": {
        "stopped": None,
        "gate": {"passed": True},
        "restored": True,
        "feasibility": {"feasible": True, "max_wall_minutes": 10},
    },
    "arms": [{"finished": True}],
    "decision": {"verdict": "validated", "reason": "because"},
}


def tried(kernel: str, ratio: float) -> Tried:
    return Tried(kernel, {offline_names(kernel)[0]: ratio})


class TestTheSource:
    """Its gate stood at 0.9762, its fallback at 0.929, and at least 1.03 was wanted."""

    def test_replay(self):
        judged = offline_gate(OFFLINE, [tried("tfidf", 0.9762), tried("length", 0.929)])
        assert not judged.passed
        assert judged.kernel is None
        assert [kernel for kernel, _ in judged.tried] == ["tfidf", "length"]
        ended = conclude({**GOOD, "calibration": {"gate": plain(judged)}})
        assert ended.verdict == "inconclusive"
        assert ended.stopped_at == "calibration"
        for part in ("0.9762 is below 1.03", "0.929 is below 1.03", "never relaxed"):
            assert part in ended.reason

    def test_the_ratio_from_its_logged_terms_fails_too(self):
        ratio = effective_batch_ratio(0.1275, 0.1622, 0.1692)
        assert abs(ratio - 0.9762) < 4e-4
        assert not offline_gate(OFFLINE, [tried("tfidf", ratio)]).passed


class TestOfflineGate:
    def test_the_first_kernel_that_passes_is_taken_and_the_other_not_looked_at(self):
        judged = offline_gate(OFFLINE, [tried("tfidf", 1.03), tried("length", 2.0)])
        assert (judged.passed, judged.kernel, judged.revised) == (True, "tfidf", False)
        assert len(judged.tried) == 1

    def test_the_fallback_is_a_revision(self):
        judged = offline_gate(OFFLINE, [tried("tfidf", 1.0), tried("length", 1.2)])
        assert (judged.passed, judged.kernel, judged.revised) == (True, "length", True)
        metric = judged.tried[1][1][0].check.metric
        assert metric == "offline_beff_ratio_length_vs_loo_mean"

    def test_a_number_that_is_missing_fails(self):
        judged = offline_gate(OFFLINE, [Tried("tfidf", {})])
        assert not judged.passed
        assert judged.tried[0][1][0].reason == "the metric is missing"

    def test_nan_fails(self):
        assert not offline_gate(OFFLINE, [tried("tfidf", float("nan"))]).passed

    def test_there_is_one_fallback_at_most(self):
        with pytest.raises(ValueError, match="at most one fallback; got 3"):
            offline_gate(OFFLINE, [tried(name, 1.0) for name in ("tfidf", "words", "length")])

    def test_without_offline_checks_nothing_is_asked(self):
        assert offline_gate([], [tried("tfidf", 0.5)]).kernel == "tfidf"


class TestMetrics:
    def test_the_seven_checks_of_the_source_are_computed_for_arms_of_any_name(self):
        arms = made.document()["arms"]
        arms[0].update(name="grpo_g8", group_size=8, groups_per_batch=4)
        arms[1].update(name="gs1_tfidf_g1", groups_per_batch=32)
        checks = [
            {name: value for name, value in check._asdict().items() if value is not None}
            for check in GS1_CHECKS
        ]
        spec = made.spec(
            arms=arms,
            batch_size=32,
            activation_gate={"checks": checks},
            decision_rule__criteria=[
                {"id": "primary", "weights": {"gs1_tfidf_g1": 1, "grpo_g8": -1}}
            ],
        )
        assert {check.metric for check in GS1_CHECKS} <= known_metrics(spec)
        assert planned_metrics(spec)["executed_group_size_grpo"] == 8
        assert kernel_arm(spec).name == "gs1_tfidf_g1"
        assert [check_of(bound) for bound in spec.activation_gate.checks] == list(GS1_CHECKS)

    def test_a_role_that_is_an_arms_name_is_that_arms(self):
        arms = made.document()["arms"]
        arms[0]["name"], arms[1]["name"] = "gs1", "kernel"
        planned = planned_metrics(made.spec(arms=arms, **between("kernel", "gs1")))
        assert planned["executed_group_size_gs1"] == 4
        assert planned["executed_group_size_kernel"] == 1
        assert planned["executed_group_size_grpo"] == 4

    def test_of_two_arms_with_groups_none_has_the_role(self):
        arms = made.document()["arms"]
        pairs = {**arms[0], "name": "pairs", "group_size": 2, "groups_per_batch": 4}
        arms[0]["name"] = "fours"
        planned = planned_metrics(made.spec(arms=[*arms, pairs], **between("gs1", "fours")))
        sizes = {name: v for name, v in planned.items() if name.startswith("executed_group_size_")}
        assert sizes == {
            "executed_group_size_gs1": 1,
            "executed_group_size_fours": 4,
            "executed_group_size_pairs": 2,
        }


def between(treatment: str, baseline: str) -> dict[str, object]:
    """Changes of a spec: a criterion of these two arms, and a gate that asks of no role."""
    return {
        "decision_rule__criteria": [{"id": "primary", "weights": {treatment: 1, baseline: -1}}],
        "activation_gate": {"checks": [{"metric": "self_weight_max", "max": 0.0}]},
    }


class TestConclude:
    def test_the_decision_is_the_verdict_where_everything_passed(self):
        assert conclude(GOOD) == ("validated", "because", None)

    @pytest.mark.parametrize(
        ("stage", "record", "told"),
        [
            ("preflight", {"passed": False, "required": True}, "correctness preflight failed"),
            ("forced", {"passed": False}, "forced test failed"),
            ("pilot", {"stopped": "gs1, step 1: x"}, "did not end its pilot: gs1, step 1: x"),
            ("pilot", {**GOOD["pilot"], "restored": False}, "not begin from the same parameters"),
            (
                "pilot",
                {
                    **GOOD["pilot"],
                    "gate": {
                        "passed": False,
                        "checks": [
                            {
                                "check": {"metric": "self_weight_max"},
                                "reason": "0.5 is above 0",
                                "passed": False,
                            }
                        ],
                    },
                },
                "self_weight_max, 0.5 is above 0",
            ),
            (
                "pilot",
                {**GOOD["pilot"], "feasibility": {"feasible": False, "max_wall_minutes": 10}},
                "within the budget of 10 minutes",
            ),
            (
                "arms",
                [{"finished": False, "arm": "gs1", "seed": 1, "reason": "step 3: the loss is nan"}],
                "gs1, seed 1, step 3: the loss is nan",
            ),
            ("decision", {"verdict": None, "reason": "There is no verdict: x."}, "no verdict"),
        ],
    )
    def test_whatever_did_not_pass_is_inconclusive_and_never_a_failure(self, stage, record, told):
        ended = conclude({**GOOD, stage: record})
        assert (ended.verdict, ended.stopped_at) == ("inconclusive", stage)
        assert told in ended.reason

    def test_a_preflight_that_is_not_required_only_records(self):
        record = {**GOOD, "preflight": {"passed": False, "required": False}}
        assert conclude(record).verdict == "validated"

    def test_the_first_failure_in_the_order_of_work_is_the_reason(self):
        record = {**GOOD, "forced": {"passed": False}, "arms": [{"finished": False}]}
        assert conclude(record).stopped_at == "forced"

    def test_a_run_that_is_not_done_has_no_verdict_yet(self):
        assert conclude({"preflight": {"passed": True}}).stopped_at == "unfinished"


def scores(seed: int, chance: float, count: int = 3000) -> dict[str, float]:
    drawn = np.random.default_rng(seed).random(count) < chance
    return {f"item{n}": float(value) for n, value in enumerate(drawn)}


class TestDecide:
    rule = made.spec().decision_rule

    @pytest.mark.parametrize(
        ("chance", "verdict"), [(0.9, "validated"), (0.56, "inconclusive"), (0.3, "failed")]
    )
    def test_the_three_words(self, chance, verdict):
        decision = decide(self.rule, {"gs1": scores(1, chance), "grpo": scores(2, 0.62)})
        assert decision.verdict == verdict
        assert f"so {verdict}" in told_decision(self.rule, decision)

    def test_margin_and_alpha_are_the_rules(self):
        one, other = scores(1, 0.62, count=20_000), scores(2, 0.62, count=20_000)
        for margin, alpha, verdict in (
            (-0.05, 0.05, "validated"),
            (0.0, 0.05, "inconclusive"),
            (0.05, 0.3, "failed"),
        ):
            criterion = {"id": "primary", "weights": {"gs1": 1, "grpo": -1}, "margin": margin}
            rule = made.spec(
                decision_rule__criteria=[criterion], decision_rule__alpha=alpha
            ).decision_rule
            decision = decide(rule, {"gs1": one, "grpo": other})
            found = decision.criteria["primary"]
            assert (decision.verdict, found.margin) == (verdict, margin)
            half = np.sqrt(2 * np.log(2 / alpha) / 20_000)  # Hoeffding, differences from -1 to 1
            assert found.upper - found.difference == pytest.approx(half)

    def test_items_pair_by_their_ids(self):
        one = scores(1, 0.5)
        turned = dict(reversed(one.items()))
        found = decide(self.rule, {"gs1": one, "grpo": turned}).criteria["primary"]
        assert found.difference == 0

    def test_an_item_that_was_not_scored_means_no_verdict(self):
        broken = {**scores(1, 0.9), "item7": None}
        with pytest.raises(ValueError, match=r"row 7: nan.*there is no verdict"):
            decide(self.rule, {"gs1": broken, "grpo": scores(2, 0.2)})

    def test_other_items_mean_no_verdict(self):
        other = {f"other{n}": 1.0 for n in range(3000)}
        with pytest.raises(ValueError, match="must score the same items"):
            decide(self.rule, {"gs1": other, "grpo": scores(2, 0.2)})


def test_every_pair_is_compared_beside_the_decision():
    found = {START: scores(0, 0.4), "grpo": scores(1, 0.6), "gs1": scores(2, 0.6)}
    by_seed = {START: [0.4, 0.4], "grpo": [0.6, 0.6], "gs1": [0.6, 0.7]}
    rows = compare(["grpo", "gs1"], found, by_seed, alpha=0.05)
    assert [(row.treatment, row.baseline) for row in rows] == [
        ("grpo", START),
        ("gs1", START),
        ("gs1", "grpo"),
    ]
    assert rows[0].decision.verdict == "validated"
    assert rows[2].seeds == pytest.approx((0.0, 0.1))
    assert rows[0].intervals.betting.upper < rows[0].decision.upper


def test_a_pair_with_an_item_that_was_not_scored_is_left_out():
    found = {START: scores(0, 0.4), "gs1": {**scores(1, 0.6), "item0": None}}
    by_seed = {START: [0.4], "gs1": [0.6]}
    assert compare(["gs1"], found, by_seed, alpha=0.05) == []
