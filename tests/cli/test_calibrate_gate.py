"""``advlib calibrate --gate``: bounds are inclusive, what is missing fails, failing is exit 3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advlib.cli._gate import measured
from advlib.diagnostics import GS1_CHECKS
from tests.cli.calibrated import lines, write

FAST = ("--resamples", 200, "--kernel", "words", "--temperature", "0.1,0.5")


@pytest.fixture(scope="module")
def telling(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("telling") / "rollouts.jsonl", lines(80))


@pytest.fixture
def gated(cli, telling, tmp_path):
    """Exit code and gate of a run."""

    def run(spec: object, *words: object) -> tuple[int, dict]:
        path = tmp_path / "gate.json"
        path.write_text(json.dumps(spec))
        ended = cli("calibrate", telling, *FAST, "--gate", path, *words, "--json")
        return ended.code, json.loads(ended.out)["gate"]

    return run


def test_it_passes_and_it_fails(gated):
    code, gate = gated([{"metric": "ratio_words", "min": 1.03}])
    assert (code, gate["passed"], gate["on"]) == (0, True, "point")
    code, gate = gated([{"metric": "ratio_words", "min": 9}])
    assert (code, gate["passed"]) == (3, False)


def test_bounds_are_inclusive(gated):
    _, gate = gated([{"metric": "ratio_words", "min": 0}])
    exact = gate["checks"][0]["value"]
    code, _ = gated([{"metric": "ratio_words", "min": exact, "max": exact}])
    assert code == 0


def test_the_point_or_the_lower_bound(gated):
    _, point = gated([{"metric": "ratio_words", "min": 0}])
    _, lower = gated([{"metric": "ratio_words", "min": 0}], "--gate-on", "lower")
    between = (point["checks"][0]["value"] + lower["checks"][0]["value"]) / 2
    assert lower["checks"][0]["value"] < between
    spec = [{"metric": "offline_beff_ratio_words_vs_loo_mean", "min": between}]
    assert gated(spec)[0] == 0
    code, gate = gated(spec, "--gate-on", "lower")
    assert (code, gate["on"]) == (3, "lower")


def test_it_says_by_which_numbers(cli, telling, tmp_path):
    path = tmp_path / "gate.json"
    path.write_text('{"checks": [{"metric": "tasks", "min": 80, "max": 80}]}')
    ended = cli("calibrate", telling, *FAST, "--gate", path, "--gate-on", "lower")
    assert ended.code == 0
    assert "The gate passed, judged by the lower bounds of the ratios." in ended.out
    assert "exactly 80" in ended.out


def test_a_missing_metric_fails(gated):
    code, gate = gated({"activation_gate": {"checks": [{"metric": "unheard_of", "max": 1}]}})
    assert code == 3
    assert gate["checks"][0] == {
        "metric": "unheard_of",
        "min": None,
        "max": 1,
        "value": None,
        "passed": False,
        "reason": "the metric is missing",
    }


def test_the_seven_checks_with_numbers_of_a_pilot(gated, tmp_path):
    checks = [check._asdict() for check in GS1_CHECKS]
    checks[0]["metric"] = checks[0]["metric"].replace("tfidf", "words")
    assert gated({"checks": checks})[0] == 3
    pilot = {
        "pilot_mean_abs_gs1_minus_batchmean_baseline": 0.05,
        "self_weight_max": 0.0,
        "executed_rollouts_per_step": 32,
        "executed_group_size_gs1": 1,
        "executed_group_size_grpo": 8,
        "nonzero_advantage_fraction_gs1": 0.9,
    }
    numbers = tmp_path / "pilot.json"
    numbers.write_text(json.dumps(pilot))
    assert gated({"checks": checks}, "--gate-metrics", numbers)[0] == 0
    numbers.write_text(json.dumps(pilot | {"self_weight_max": None}))
    assert gated({"checks": checks}, "--gate-metrics", numbers)[0] == 3


def test_too_few_tasks_fail_the_gate_and_are_no_error(cli, tmp_path):
    path = tmp_path / "gate.json"
    path.write_text('[{"metric": "ratio_tfidf", "min": 1.03}]')
    report = tmp_path / "report.html"
    few = write(tmp_path / "few.jsonl", lines(3))
    ended = cli("calibrate", few, "--gate", path, "--html", report)
    assert ended.code == 3
    assert "missing" in ended.out
    assert "missing" in report.read_text()


def test_names_of_metrics():
    row = {
        "temperature": 0.1,
        "ratio": 1.2,
        "interval": [1.1, 1.3],
        "mse_kernel": 0.2,
        "mse_loo": 0.3,
        "sigma2": None,
        "ess": 4.0,
    }
    document = {
        "tasks": {"count": 5, "with_two_or_more": 4},
        "coverage": {"valid": 20},
        "temperature": 0.1,
        "kernels": [{"name": "tfidf", "estimates": [row, {**row, "temperature": "inf"}]}],
    }
    found = measured(document, on="point")
    assert found == {
        "tasks": 5,
        "tasks_with_two_or_more": 4,
        "rollouts": 20,
        "ratio_tfidf": 1.2,
        "mse_tfidf": 0.2,
        "ess_tfidf": 4.0,
        "ratio_tfidf@0.1": 1.2,
        "mse_tfidf@0.1": 0.2,
        "ess_tfidf@0.1": 4.0,
        "ratio_tfidf@inf": 1.2,
        "mse_tfidf@inf": 0.2,
        "ess_tfidf@inf": 4.0,
        "offline_beff_ratio_tfidf_vs_loo_mean": 1.2,
        "mse_loo": 0.3,
    }
    assert measured(document, on="lower")["ratio_tfidf"] == 1.1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not JSON"),
        ("{}", 'wanted {"checks": [{"metric": NAME, "min": X}, ...]}'),
        ("[]", "at least one"),
        ("[3]", "got int"),
        ('[{"metric": "ratio_tfidf"}]', "min or max"),
        ('[{"metric": "ratio_tfidf", "minimum": 1}]', "unknown field 'minimum'"),
        ('[{"metric": "ratio_tfidf", "min": "1"}]', "min must be a number"),
    ],
)
def test_a_spec_that_is_none(cli, telling, tmp_path, content, told):
    path = tmp_path / "gate.json"
    path.write_text(content)
    ended = cli("calibrate", telling, "--gate", path)
    assert ended.code == 2
    assert told in ended.err
    assert str(path) in ended.err


@pytest.mark.parametrize("content", ["[1]", '{"a": "b"}', '{"a": true}'])
def test_metrics_that_are_none(cli, telling, tmp_path, content):
    gate, numbers = tmp_path / "gate.json", tmp_path / "numbers.json"
    gate.write_text('[{"metric": "a", "min": 0}]')
    numbers.write_text(content)
    ended = cli("calibrate", telling, "--gate", gate, "--gate-metrics", numbers)
    assert ended.code == 2
    assert f"--gate-metrics {numbers}" in ended.err
