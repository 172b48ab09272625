"""Gates and preflights: what is missing or not a number has not passed."""

from __future__ import annotations

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from advlib import diagnostics as dx

PILOT = {
    "offline_beff_ratio_tfidf_vs_loo_mean": 1.03,
    "pilot_mean_abs_gs1_minus_batchmean_baseline": 0.01,
    "self_weight_max": 0.0,
    "executed_rollouts_per_step": 32,
    "executed_group_size_gs1": 1,
    "executed_group_size_grpo": 8,
    "nonzero_advantage_fraction_gs1": 0.3,
}


def test_the_preset_passes_at_its_bounds():
    gate = dx.activation_gate(dx.GS1_CHECKS, PILOT)
    assert gate.passed
    assert len(gate.checks) == 7
    assert {checked.reason for checked in gate.checks} == {""}


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("offline_beff_ratio_tfidf_vs_loo_mean", 0.9762, "0.9762 is below 1.03"),
        ("self_weight_max", 1e-9, "above 0"),
        ("self_weight_max", -1e-9, "below 0"),
        ("executed_rollouts_per_step", 33, "above 32"),
        ("executed_group_size_gs1", math.nan, "got NaN"),
        ("executed_group_size_gs1", np.float32("nan"), "got NaN"),
        ("executed_group_size_grpo", None, "got None"),
        ("executed_group_size_grpo", "8", "got '8'"),
        ("executed_group_size_gs1", True, "got True"),
        ("nonzero_advantage_fraction_gs1", ..., "missing"),
    ],
)
def test_one_bad_metric_fails(metric, value, reason):
    metrics = {**PILOT, metric: value}
    if value is ...:
        del metrics[metric]
    gate = dx.activation_gate(dx.GS1_CHECKS, metrics)
    assert not gate.passed
    [failed] = [checked for checked in gate.checks if not checked.passed]
    assert failed.check.metric == metric
    assert reason in failed.reason


def test_checks_may_come_from_json():
    checks = json.loads('[{"metric": "a", "min": 1}, {"metric": "b", "max": 2, "measures": "x"}]')
    assert dx.activation_gate(checks, {"a": 1, "b": np.int64(2), "c": 0}).passed
    assert dx.activation_gate(checks, {"a": math.inf, "b": jnp.float32(2.0)}).passed
    assert not dx.activation_gate(checks, {"a": 1, "b": 2.5}).passed


@pytest.mark.parametrize(
    ("checks", "error", "message"),
    [
        ([], ValueError, "at least one"),
        ([{"metric": "a"}], ValueError, "must have min or max"),
        ([{"metric": "a", "minimum": 1}], ValueError, "unknown field 'minimum'"),
        ([{"min": 1}], ValueError, "no metric"),
        ([{"metric": "a", "min": 2, "max": 1}], ValueError, "above max"),
        ([{"metric": "a", "min": "1"}], TypeError, "min must be a number"),
        ([{"metric": "a", "min": math.nan}], TypeError, "min must be a number"),
        ([dx.Check("a", min=1), dx.Check("a", max=2)], ValueError, "'a' twice"),
        (["a"], TypeError, "Check or a mapping"),
    ],
)
def test_a_gate_that_means_nothing_is_refused(checks, error, message):
    with pytest.raises(error, match=message):
        dx.activation_gate(checks, {"a": 1})


def test_a_ratio_may_be_gated_on_its_lower_bound():
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=60)
    rewards = (rng.random((60, 4)) < np.array([0.2, 0.5, 0.8])[kind][:, None]).astype(float)
    found = dx.effective_batch(rewards, np.eye(3)[kind], num_resamples=200)
    metrics = dx.effective_batch_metrics(found)
    between = (found.interval[0] + found.ratio) / 2
    assert dx.activation_gate([dx.ratio_check(between)], metrics).passed
    assert not dx.activation_gate([dx.ratio_check(between, on="lower")], metrics).passed
    with pytest.raises(ValueError, match="point"):
        dx.ratio_check(on="upper")


def test_preflight_measures_the_difference():
    reference = {"loss": np.array(2.0), "gradient": np.array([3.0, 4.0])}
    candidate = {"loss": np.array(2.0 + 1e-6), "gradient": jnp.array([3.0, 4.001])}
    seen = dx.correctness_preflight(candidate, reference, inputs={"r": [1.0, 2.0]})
    assert seen.passed
    gradient = seen.comparisons["gradient"]
    assert gradient.max_abs_error == pytest.approx(1e-3, rel=1e-3)
    assert gradient.reference_max_abs == 4.0
    assert gradient.relative_l2_error == pytest.approx(2e-4, rel=1e-3)
    assert 0.9999 < gradient.cosine < 1
    record = json.loads(seen.to_json())
    assert record["passed"] is True
    assert record["comparisons"]["gradient"]["tolerance"]["min_cosine"] == 0.9999
    assert record["inputs_sha256"] == dx.content_hash({"r": np.array([1.0, 2.0])})
    far = dx.correctness_preflight({"loss": 2.0 + 3e-5}, {"loss": 2.0})
    assert not far.passed


def test_preflight_of_zeros():
    zeros, tiny, some = np.zeros(3), np.full(3, 9e-6), np.array([0.0, 2e-5, 0.0])
    for candidate, passed in ((zeros, True), (tiny, True), (some, False)):
        for pair in ((candidate, zeros), (zeros, candidate)):
            [seen] = dx.correctness_preflight(
                {"gradient": pair[0]}, {"gradient": pair[1]}
            ).comparisons.values()
            assert seen.passed is passed
            assert seen.cosine is None
    assert json.loads(dx.correctness_preflight({"loss": 0.0}, {"loss": 0.0}).to_json())["passed"]
    # Within atol of zero, not within the tolerance of each other.
    hardly = {"gradient": np.full(3, 1.0005e-5)}
    assert not dx.correctness_preflight({"gradient": zeros}, hardly).passed


def test_preflight_by_cosine_alone():
    tolerance = {"g": dx.Tolerance(atol=1.0, rtol=0.0, min_cosine=0.9999)}
    candidate, reference = {"g": [0.1, 0.0]}, {"g": [0.0, 0.1]}
    seen = dx.correctness_preflight(candidate, reference, tolerance)
    assert seen.comparisons["g"].max_abs_error < 1
    assert not seen.passed


def test_preflight_of_what_is_not_finite_fails():
    for bad in (math.nan, math.inf):
        seen = dx.correctness_preflight({"loss": [1.0, bad]}, {"loss": [1.0, bad]})
        assert not seen.passed
        assert seen.comparisons["loss"].not_finite == 1
        json.loads(seen.to_json())


@pytest.mark.parametrize(
    ("candidate", "reference", "error", "message"),
    [
        ({"loss": [1.0]}, {"loss": [1.0, 2.0]}, ValueError, r"\(2,\); got \(1,\)"),
        ({"loss": 1.0}, {"loss": 1.0, "gradient": 1.0}, ValueError, "candidate lacks 'gradient'"),
        ({"loss": 1.0, "x": 2.0}, {"loss": 1.0}, ValueError, "reference lacks 'x'"),
        ({"entropy": 1.0}, {"entropy": 1.0}, ValueError, "tolerances must hold one for 'entropy'"),
        ({"loss": "1"}, {"loss": 1.0}, TypeError, "loss must be numbers"),
        ({}, {}, ValueError, "at least one array"),
        ({"loss": []}, {"loss": []}, ValueError, "at least one number"),
    ],
)
def test_a_preflight_that_compares_nothing_is_refused(candidate, reference, error, message):
    with pytest.raises(error, match=message):
        dx.correctness_preflight(candidate, reference)


def test_hash_is_of_the_content():
    base = {"r": np.array([[1.0, 2.0], [3.0, 4.0]]), "ids": np.array(["a", "bc"])}
    same = {"ids": base["ids"].copy(), "r": np.asfortranarray(base["r"]).astype(">f8")}
    wanted = dx.content_hash(base)
    assert dx.content_hash(same) == wanted
    assert len(wanted) == 64
    for other in (
        {**base, "r": base["r"].reshape(4)},
        {**base, "r": base["r"].astype(np.float32)},
        {**base, "r": base["r"] + 1e-12},
        {"r": base["r"], "id": base["ids"]},
    ):
        assert dx.content_hash(other) != wanted
    with pytest.raises(TypeError, match="Python objects"):
        dx.content_hash({"x": np.array([None])})
