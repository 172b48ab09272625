"""The loop: its record, its masks, its order, its stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advlib
from advlib import trainer
from advlib.trainer import Rollouts, TrainingStopped, UpdateMetrics
from advlib.trainer._settings import disagreement_limit
from advlib.trainer._stop import why_stopped
from advlib.trainer.environments import Question, question_set
from tests.trainer import runs
from tests.trainer.small import BYTES, TOKENIZER, params

FEW = runs.SETTINGS._replace(steps=2)


def run(folder: Path, **options: Any) -> Any:
    return runs.run(folder, **{"params": params(BYTES), **options})


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[Rollouts]]:
    """A whole run, and the rollouts that its estimator was given."""
    folder, seen = tmp_path_factory.mktemp("run") / "run", []

    def advantages(rollouts: Rollouts) -> Any:
        seen.append(rollouts)
        return runs.leave_one_out(rollouts)

    return folder, run(folder, advantages=advantages, tensorboard=True), seen


def test_estimators_get_the_whole_batch(done: tuple[Path, Any, list[Rollouts]]) -> None:
    _, trained, seen = done
    assert trained.steps == len(seen) == 6
    for rollouts in seen:
        np.testing.assert_array_equal(rollouts.group_ids, [0, 0, 1, 1, 2, 2, 3, 3])
        assert rollouts.features.shape == (8, 2)
        for i, question in enumerate(rollouts.questions):
            assert question == rollouts.questions[i - i % 2]
            scored = runs.score(question, rollouts.responses[i])
            assert rollouts.where[i] == (not question.text.endswith("c"))
            if rollouts.where[i]:
                assert rollouts.rewards[i] == np.float32(scored)
            else:
                assert np.isnan(rollouts.rewards[i])  # never a zero
                assert rollouts.reasons[i] == "the grader was away"


def test_every_question_comes_once_a_pass(done: tuple[Path, Any, list[Rollouts]]) -> None:
    asked = [q.text for rollouts in done[2] for q in rollouts.questions[::2]]
    assert len(asked) == 24
    assert sorted(asked[:19]) == sorted(runs.QUESTIONS)
    assert asked[:19] != runs.QUESTIONS


def test_the_record_says_what_happened(done: tuple[Path, Any, list[Rollouts]]) -> None:
    folder, _, seen = done
    told = records(folder)
    assert [record["step"] for record in told] == list(range(6))
    assert sum(record["masked"] for record in told) >= 2
    for record, rollouts in zip(told, seen, strict=True):
        valid = rollouts.where
        rewards = rollouts.rewards[valid].astype(np.float64)
        others = (rewards.sum() - rewards) / (len(rewards) - 1)
        given = np.asarray(runs.leave_one_out(rollouts))
        measures = advlib.diagnostics.step_metrics(rollouts.features, rollouts.rewards, where=valid)
        assert record["masked"] == (~valid).sum()
        reasons = {} if valid.all() else {"the grader was away": int((~valid).sum())}
        assert record["masked_reasons"] == reasons
        assert [r is None for r in record["rewards"]] == (~valid).tolist()
        close = {
            "reward": rewards.mean(),
            "baseline": (rewards - given[valid]).mean(),
            "leave_one_out_mean": others.mean(),
            "mean_abs_shift": np.abs(rewards - given[valid] - others).mean(),
            "zero_advantage_share": (np.abs(given[valid]) <= 1e-6).mean(),
            "ess": measures.ess,
            "residual_ratio": measures.residual_ratio,
            "max_self_weight": 0.0,
            "length_mean": rollouts.lengths.mean(),
            "tokens": rollouts.lengths[valid].sum(),
            "sequences": valid.sum(),
            "samples": 8,
            "groups": 4,
            "applied": 1.0,
        }
        for name, value in close.items():
            np.testing.assert_allclose(record[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        assert sum(record["finish"].values()) == 8
        assert record["disagreement"] < 1e-3
        for name in ("loss", "grad_norm", "entropy", "kl_k1", "kl_k3", "ratio_max"):
            assert np.isfinite(record[name])


def test_times_are_kept_apart(done: tuple[Path, Any, list[Rollouts]]) -> None:
    lines = (done[0] / "times.jsonl").read_text().splitlines()
    assert len(lines) == 6
    for line in map(json.loads, lines):
        assert line.keys() == {
            "step", "sample", "score", "features", "advantage", "update", "record"
        }  # fmt: skip
        assert all(line[name] >= 0 for name in line)
    assert list((done[0] / "tensorboard").glob("events*"))


def test_two_runs_of_one_seed_are_equal_and_another_seed_is_not(
    done: tuple[Path, Any, list[Rollouts]], tmp_path: Path
) -> None:
    again = run(tmp_path / "again")
    np.testing.assert_array_equal(runs.flat(again.params), runs.flat(done[1].params))
    metrics = (done[0] / "metrics.jsonl").read_bytes()
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == metrics
    run(tmp_path / "other", settings=runs.SETTINGS._replace(seed=4))
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() != metrics


def test_a_run_goes_on_where_it_was(done: tuple[Path, Any, list[Rollouts]], tmp_path: Path) -> None:
    run(tmp_path, settings=runs.SETTINGS._replace(steps=3))
    longer = run(tmp_path, resume=True)
    np.testing.assert_array_equal(runs.flat(longer.state), runs.flat(done[1].state))
    wanted = (done[0] / "metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() == wanted
    ended = run(tmp_path, resume=True)
    assert ended.steps == 6
    np.testing.assert_array_equal(runs.flat(ended.state), runs.flat(longer.state))
    assert (tmp_path / "metrics.jsonl").read_bytes() == wanted


def test_a_run_is_not_written_over_nor_changed_midway(tmp_path: Path) -> None:
    run(tmp_path, settings=FEW)
    with pytest.raises(FileExistsError, match="holds a run; resume=True goes on with it"):
        run(tmp_path, settings=FEW)
    with pytest.raises(ValueError, match="group_size was 2 and is 4"):
        run(tmp_path, settings=FEW._replace(steps=3, group_size=4), resume=True)


def test_the_parameters_given_are_left_alone(tmp_path: Path) -> None:
    before = runs.flat(params(BYTES))
    trained = run(tmp_path, settings=FEW)
    np.testing.assert_array_equal(runs.flat(params(BYTES)), before)
    assert np.abs(runs.flat(trained.params) - before).max() > 1e-3


def test_a_step_without_any_measurement_changes_nothing(tmp_path: Path) -> None:
    def away(question: Question, response: str) -> float:
        raise TimeoutError("no grader")

    trained = run(tmp_path, scorer=away, settings=FEW)
    np.testing.assert_array_equal(runs.flat(trained.params), runs.flat(params(BYTES)))
    for record in records(tmp_path):
        assert (record["masked"], record["reward"], record["tokens"]) == (8, None, 0)
        assert record["masked_reasons"] == {"TimeoutError: no grader": 8}


def never(rollouts: Rollouts) -> np.ndarray:
    return np.full(8, 1e9)


def test_a_step_out_of_bounds_stops_the_run_and_leaves_its_batch(tmp_path: Path) -> None:
    reason = r"step 0: the loss is .* \(loss_limit 10000\)"
    with pytest.raises(TrainingStopped, match=reason) as stopped:
        run(tmp_path, settings=FEW, advantages=never)
    assert stopped.value.step == 0
    with np.load(stopped.value.saved / "batch.npz", allow_pickle=False) as saved:
        assert set(saved) == {*trainer.Batch._fields} - {"reference"}
    lines = (stopped.value.saved / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["group"] for line in lines] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert records(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"disagreement": 0.69}, "sampler and trainer disagree by 0.69 in a log-probability"),
        ({"loss": np.nan}, "the loss is nan"),
        ({"loss": -2e4}, "the loss is -2e+04 (loss_limit 10000)"),
        ({"grad_norm": np.inf}, "the norm of the gradient is inf"),
        ({"tokens": 0.0}, None),
        ({"applied": 1.0}, None),
    ],
)
def test_why_a_step_was_not_applied(changes: dict[str, float], reason: str | None) -> None:
    fine = UpdateMetrics(*np.ones(len(UpdateMetrics._fields)))._replace(applied=0.0)
    fine = fine._replace(disagreement=0.0)
    told = why_stopped(fine._replace(**changes), loss_limit=1e4, disagreement_limit=0.1)
    assert told == reason or str(told).startswith(str(reason))


def test_nan_in_the_parameters_stops_the_run(tmp_path: Path) -> None:
    broken = jax.tree.map(lambda array: array.at[0].set(np.nan), params(BYTES))
    with pytest.raises(TrainingStopped, match="step 0: the loss is nan"):
        run(tmp_path, params=broken, settings=FEW)


def test_an_advantage_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="advantages must be finite; row 0: nan"):
        run(tmp_path, advantages=lambda r: np.full(8, np.nan), scorer=lambda q, r: 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 2**32}, "seed must be below"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1"),
        ({"compute_dtype": "float7"}, "compute_dtype must be such as 'bfloat16'; got 'float7'"),
        ({"compute_dtype": "int32"}, "compute_dtype must be such as 'bfloat16'; got 'int32'"),
        ({"disagreement_limit": np.nan}, "disagreement_limit must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, settings=FEW._replace(**changes))


def test_the_limit_of_disagreement_is_by_what_weights_are_read_in() -> None:
    single = {"w": np.zeros(2, np.float32), "ids": np.zeros(2, np.int8)}
    half = {"w": jnp.zeros(2, jnp.bfloat16)}
    for settings, trained, frozen, wanted in (
        (FEW, single, {}, 1e-3),
        (FEW, half, {}, 0.1),
        (FEW, single, half, 0.1),
        (FEW._replace(compute_dtype="bfloat16"), single, {}, 0.1),
        (FEW._replace(compute_dtype="float32"), half, {}, 1e-3),
        (FEW._replace(compute_dtype="bfloat16", disagreement_limit=0.5), single, half, 0.5),
        (FEW._replace(disagreement_limit=np.inf), single, half, np.inf),
    ):
        assert disagreement_limit(settings, trained, frozen) == wanted


def test_half_precision_does_not_stop_a_run(tmp_path: Path) -> None:
    run(tmp_path, settings=FEW._replace(compute_dtype="bfloat16"))
    assert max(record["disagreement"] for record in records(tmp_path)) > 1e-3


def test_a_prompt_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"question '.*' has 6 tokens; max_prompt is 5"):
        run(tmp_path, settings=FEW._replace(max_prompt=5))


def test_reinforcement_raises_the_reward(tmp_path: Path) -> None:
    """Bytes below 32 are rewarded: an eighth of them at first."""
    environment = question_set(
        ["x", "y", "z"], lambda q, r: sum(letter < " " for letter in r) / max(len(r), 1)
    )
    settings = runs.SETTINGS._replace(steps=100, questions_per_step=8, group_size=1)
    trainer.train(
        trainer.decoder(BYTES),
        params(BYTES),
        environment,
        tokenizer=TOKENIZER,
        advantages=lambda r: advlib.batch_leave_one_out(r.rewards, where=r.where),
        optimizer=runs.optimizer(),
        settings=settings._replace(checkpoint_every=100),
        directory=tmp_path,
        progress=False,
        tensorboard=False,
    )
    rewards = [record["reward"] for record in records(tmp_path)]
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.3


def test_greedy_answers_come_in_order_whatever_the_batch() -> None:
    environment = question_set(runs.QUESTIONS, runs.score)
    options = {"tokenizer": TOKENIZER, "max_prompt": 6, "max_new": 4}
    policy, tree = trainer.decoder(BYTES), params(BYTES)
    whole = trainer.evaluate(policy, tree, environment, batch_size=19, **options)
    parts = trainer.evaluate(policy, tree, environment, batch_size=8, **options)
    assert [q.text for q in whole.questions] == runs.QUESTIONS
    assert whole.responses == parts.responses
    assert len(set(whole.responses)) > 1
    np.testing.assert_array_equal(whole.scored.rewards, parts.scored.rewards)
    assert (~whole.scored.where).sum() == 1
    some = trainer.evaluate(policy, tree, environment, indices=[4, 2], batch_size=8, **options)
    assert some.responses == (whole.responses[4], whole.responses[2])
