"""Parts of a run by themselves: draws, arms, their log, the budget, the seeds of a decision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advlib import diagnostics
from advlib.experiments import _training
from advlib.experiments._estimators import arm_advantages, reference_advantages
from advlib.experiments._folder import Folder
from advlib.experiments._setup import set_up
from advlib.experiments._work import Work, begin_work, draw
from advlib.experiments.run import _decision, _mean_scores
from advlib.experiments.spec import Arm
from advlib.trainer import Rollouts
from tests.experiments import made
from tests.experiments.conftest import Run


def begun(folder: Path, **changes: Any) -> Work:
    spec = made.spec(**changes)
    setup = set_up(spec, folder=folder, given=made.tasks())
    return begin_work(spec, setup, Folder(folder), told=print, progress=False)


def test_a_response_does_not_depend_on_the_batch_it_is_drawn_in(tmp_path: Path) -> None:
    work = begun(tmp_path)
    question = work.setup.train.prompts([0])[0]
    one, parts = (
        draw(work, work.setup.params, [question] * 16, batch_size=size).texts for size in (16, 6)
    )
    assert one == parts
    assert len(set(one)) > 12  # each row has a stream of its own


def test_an_arm_is_trained_as_the_spec_says(tmp_path: Path, monkeypatch: Any) -> None:
    asked: dict[str, Any] = {}

    def train(policy: Any, params: Any, environment: Any, **options: Any) -> Any:
        asked.update(options, environment=environment)
        return SimpleNamespace(params=params)

    monkeypatch.setattr(_training, "train", train)
    work = begun(tmp_path, sampling__temperature=0.7)
    for arm, sizes in zip(work.spec.arms, [(2, 4), (8, 1)], strict=True):
        _training.train_arm(work, work.setup.params, arm, 1, 3, tmp_path / arm.name, "tfidf")
        settings = asked["settings"]
        assert (settings.questions_per_step, settings.group_size) == sizes
        assert (settings.seed, settings.steps, settings.temperature) == (1, 3, 0.7)
        # Over the batch, not over tokens: a long response weighs no less than a short one.
        assert settings.denominator == 8.0
        assert asked["environment"] is work.setup.train
        assert asked["kernel_temperature"] == work.spec.arms[1].temperature


@pytest.mark.parametrize(
    "advantage",
    ["group_mean", "grpo", "leave_one_out", "batch_mean", "batch_leave_one_out", "gs1"],
)
def test_every_estimator_is_what_its_reference_says(advantage: str) -> None:
    rng = np.random.default_rng(3)
    where = np.arange(12) != 4
    rewards = np.where(where, rng.normal(size=12), np.nan).astype(np.float32)
    groups = np.repeat(np.arange(4, dtype=np.int32), 3)
    unknown: Any = (None,) * 12
    lengths = np.ones(12, np.int32)
    rollouts = Rollouts(
        unknown, ("",) * 12, rewards, groups, where, ("",) * 12, lengths, lengths,
        rng.normal(size=(12, 5)).astype(np.float32),
    )  # fmt: skip
    size, count = (1, 12) if advantage.startswith(("batch", "gs1")) else (3, 4)
    arm = Arm("x", advantage, size, count, temperature=0.3)
    right = reference_advantages(arm, rollouts)
    assert right[4] == 0
    assert np.abs(right).max() > 0.5
    np.testing.assert_allclose(arm_advantages(arm)(rollouts), right, rtol=1e-5, atol=1e-6)
    if advantage == "grpo":
        peers = rewards[:3].astype(np.float64)
        by_hand = (peers - peers.mean()) / (peers.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(right[:3], by_hand, rtol=1e-12)


def logged(samples: int, groups: int, **changes: Any) -> dict[str, Any]:
    step = {
        "samples": samples,
        "groups": groups,
        "masked": 1,
        "zero_advantage_share": 0.25,
        "mean_abs_shift": 0.1,
        "max_self_weight": None,
        "disagreement": 1e-6,
    }
    return {**step, **changes}


def test_what_was_executed_is_read_from_the_log() -> None:
    steps = [
        logged(8, 2, max_self_weight=0.25, disagreement=2e-6),
        logged(8, 2, zero_advantage_share=None, mean_abs_shift=0.3),
    ]
    assert _training._executed(steps) == {
        "rollouts_per_step": 8,
        "group_size": 4,
        "masked": 2,
        "nonzero_advantage_fraction": 0.75,
        "mean_abs_shift": pytest.approx(0.2),
        "self_weight_max": 0.25,
        "disagreement_max": 2e-6,
    }


def test_steps_and_arms_that_differ_have_no_common_number_and_pass_no_check() -> None:
    executed = _training._executed([logged(8, 2), logged(6, 2)])
    assert (executed["rollouts_per_step"], executed["group_size"]) == (None, None)
    work: Any = SimpleNamespace(spec=made.spec())
    one = _training._executed([logged(8, 8, max_self_weight=0.0)])
    found = {"gs1": one, "grpo": {**one, "rollouts_per_step": 6}}
    metrics = _training._metrics(work, found)
    check = diagnostics.Check("executed_rollouts_per_step", min=1)
    assert metrics[check.metric] is None
    assert not diagnostics.activation_gate([check], metrics).passed


@pytest.mark.parametrize(("minutes", "fits"), [(0.1, False), (2.05, False), (2.15, True)])
def test_a_budget_holds_what_was_spent_and_what_is_ahead(
    tmp_path: Path, minutes: float, fits: bool
) -> None:
    work: Any = SimpleNamespace(
        spec=made.spec(budget={"max_wall_minutes": minutes}), folder=Folder(tmp_path)
    )
    work.folder.time("calibration", 50.0)
    seconds = {"gs1 first": 5.0, "grpo first": 5.0, "gs1 step": 1.0, "grpo step": 2.0}
    # Two seeds of four steps, and the items of the start and of four trained policies.
    ahead = 10 + 2 * 4 * (1 + 2) + 60 * 5 * 0.1
    assert 60 + ahead == 124
    found = _training.feasibility(work, {**seconds, "evaluation item": 0.1}, spent=10.0)
    assert found["feasible"] == fits
    assert found["planned"] == {"steps": 16, "rollouts": 128, "evaluated_items": 300}


def test_an_item_that_one_seed_did_not_measure_has_no_mean() -> None:
    seeds = [{"a": 1.0, "b": None, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 0.0}]
    assert _mean_scores(seeds) == {"a": 0.5, "b": None, "c": 0.0}


def test_the_decision_is_on_the_seeds_of_the_rule(finished: Run) -> None:
    work: Any = SimpleNamespace(
        spec=made.spec(decision_rule__seeds=[1]), folder=Folder(finished.folder)
    )
    policies = finished.record["evaluation"]["policies"]
    accuracy = {(row["arm"], row["seed"]): row["accuracy"] for row in policies}
    found = _decision(work, policies)
    assert found["seeds"] == [1]
    assert found["criteria"]["primary"].difference == pytest.approx(
        accuracy["gs1", 1] - accuracy["grpo", 1]
    )
    assert accuracy["gs1", 1] - accuracy["grpo", 1] != accuracy["gs1", 0] - accuracy["grpo", 0]
    assert found["by_seed"]["gs1"] == [accuracy["gs1", 0], accuracy["gs1", 1]]
