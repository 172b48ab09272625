"""A run from its start to its verdict, and the ones that must end before."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from advlib import diagnostics
from advlib.cli._experiment_page import page
from advlib.experiments import Given, SpecError, _preflight, _training, read_record, run_experiment
from advlib.experiments._folder import STAGES
from advlib.experiments._lock import locked
from advlib.experiments._params import load_params
from advlib.experiments._setup import set_up
from advlib.experiments._work import make_optimizer
from advlib.trainer import evaluate
from tests.experiments import made
from tests.experiments.conftest import Run, run


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def arm_runs(record: dict) -> list[dict]:
    return [one for arm in record["arms"] for one in arm["runs"]]


class TestFinished:
    def test_the_record_is_the_file(self, finished: Run):
        assert json.loads((finished.folder / "record.json").read_text()) == finished.record

    def test_it_can_be_read_back(self, finished: Run, tmp_path: Path):
        assert read_record(finished.folder) == finished.record
        (tmp_path / "record.json").write_text('{"format": "other"}')
        with pytest.raises(SpecError, match="must be a record of format"):
            read_record(tmp_path)

    def test_it_has_the_pinned_parts(self, finished: Run):
        assert {"verdict", "arms", "gate", "evaluation"} <= set(finished.record)
        assert finished.record["verdict"] in ("validated", "failed", "inconclusive")
        assert finished.record["stopped_at"] is None

    def test_stages_are_recorded_in_the_order_of_work(self, finished: Run):
        written = sorted((finished.folder / "stages").iterdir(), key=lambda p: p.stat().st_mtime_ns)
        numbers = [int(path.name[:2]) for path in written]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(1, len(STAGES) + 1))

    def test_every_arm_begins_from_the_same_parameters(self, finished: Run):
        start = finished.record["start"]["params_sha256"]
        assert {one["restoration"]["params_sha256"] for one in arm_runs(finished.record)} == {start}
        assert all(one["restoration"]["max_abs_error"] == 0 for one in arm_runs(finished.record))

    def test_and_ends_with_parameters_of_its_own(self, finished: Run):
        ends = {one["params_sha256"] for one in arm_runs(finished.record)}
        assert len(ends) == 4
        assert finished.record["start"]["params_sha256"] not in ends

    def test_arms_of_a_seed_see_one_order_of_questions_and_one_budget(self, finished: Run):
        by_seed: dict[int, set[str]] = {}
        for one in arm_runs(finished.record):
            by_seed.setdefault(one["seed"], set()).add(one["questions_sha256"])
            assert one["rollouts_per_step"] == 8
            assert one["steps"] == 4
        assert [len(orders) for orders in by_seed.values()] == [1, 1]
        assert by_seed[0] != by_seed[1]

    def test_the_preflight_compares_every_arm(self, finished: Run):
        found = finished.record["preflight"]
        assert found["passed"]
        for arm in ("grpo", "gs1"):
            assert set(found["arms"][arm]["comparisons"]) == {"advantages", "loss", "gradient"}
            assert found["arms"][arm]["comparisons"]["gradient"]["reference_max_abs"] > 0.1

    def test_forced_tests_of_the_kernel_and_of_the_fallback(self, finished: Run):
        kernels = finished.record["forced"]["kernels"]
        assert set(kernels) == {"tfidf", "length"}
        for one in kernels.values():
            assert one["activation"]["check_passed"]
            assert not one["non_activation"]["check_passed"]

    def test_the_gate_passes_on_the_mixture(self, finished: Run):
        gate = finished.record["gate"]
        assert gate["passed"]
        kernel = finished.record["calibration"]["kernels"]["tfidf"]
        judged = [one["value"] for one in gate["offline"]["tried"][0][1]]
        assert judged == [kernel["ratio"], *kernel["interval"]]
        assert kernel["ratio"] >= 1.03
        assert kernel["interval"][0] < kernel["ratio"] < kernel["interval"][1]
        assert {one["check"]["metric"] for one in gate["pilot"]["checks"]} == {
            "self_weight_max",
            "executed_rollouts_per_step",
            "executed_group_size_gs1",
            "executed_group_size_grpo",
            "nonzero_advantage_fraction_gs1",
            "pilot_mean_abs_gs1_minus_batchmean_baseline",
        }

    def test_the_calibration_can_be_computed_again_from_its_file(self, finished: Run):
        from advlib import text

        drawn = rows(finished.folder / "calibration" / "rollouts.jsonl")
        table = np.array([row["reward"] for row in drawn], float).reshape(48, 8)
        prompts = [row["prompt"] for row in drawn[::8]]
        given = made.tasks().environment.train
        training = [q.text for q in given.prompts(range(120)) if q.text not in set(prompts)]
        found = diagnostics.effective_batch(
            table, text.fit_tfidf(training).transform(prompts), batch_size=8, num_resamples=200
        )
        assert finished.record["calibration"]["kernels"]["tfidf"]["ratio"] == pytest.approx(
            found.ratio, rel=1e-12
        )

    def test_no_question_is_in_two_parts(self, finished: Run):
        calibrated = {row["id"] for row in rows(finished.folder / "calibration/rollouts.jsonl")}
        examined = {row["id"] for row in rows(finished.folder / "evaluation/start.jsonl")}
        assert len(calibrated) == 48
        assert len(examined) == 60
        assert not calibrated & examined

    def test_accuracies_are_those_of_the_items(self, finished: Run):
        for policy in finished.record["evaluation"]["policies"]:
            name = policy["policy"].replace("/", "-")
            path = finished.folder / "evaluation" / f"{name}.jsonl"
            assert policy["accuracy"] == np.mean([row["score"] for row in rows(path)])
            assert policy["items_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_answers_are_the_greedy_ones(self, finished: Run):
        setup = set_up(made.spec(), folder=finished.folder, given=made.tasks())
        path, digest = finished.folder / "start/params.npz", finished.record["start"]
        right = evaluate(
            setup.policy,
            load_params(path, setup.params, sha256=digest["params_sha256"]),
            setup.held_out,
            tokenizer=setup.tokenizer,
            max_prompt=24,
            max_new=3,
        )
        found = rows(finished.folder / "evaluation/start.jsonl")
        assert [row["response"] for row in found] == list(right.responses)

    def test_the_decision_is_that_of_the_items_averaged_over_the_seeds(self, finished: Run):
        def scores(arm: str) -> np.ndarray:
            files = [finished.folder / f"evaluation/{arm}-seed-{seed}.jsonl" for seed in (0, 1)]
            return np.mean([[row["score"] for row in rows(path)] for path in files], axis=0)

        right = diagnostics.paired_decision(scores("gs1"), scores("grpo"), margin=-0.05)
        found = finished.record["decision"]["criteria"]["primary"]
        assert found["difference"] == pytest.approx(right.difference, abs=1e-12)
        assert found["lower"] == pytest.approx(right.lower, abs=1e-12)
        assert finished.record["verdict"] == right.verdict

    def test_no_clock_and_no_path_is_in_the_record(self, finished: Run):
        text = (finished.folder / "record.json").read_text()
        assert str(finished.folder.parent) not in text
        assert "seconds" not in text
        assert (finished.folder / "timing.json").exists()

    def test_a_second_run_writes_the_same_bytes(self, finished: Run, tmp_path: Path):
        again = run(tmp_path / "again")
        first, second = (r.folder / "record.json" for r in (finished, again))
        assert first.read_bytes() == second.read_bytes()

    def test_resuming_a_finished_run_changes_nothing(self, finished: Run):
        before = (finished.folder / "record.json").read_bytes()
        said: list[str] = []
        run_experiment(
            made.spec(), finished.folder, given=made.tasks(), resume=True, told=said.append
        )
        assert said == []
        assert (finished.folder / "record.json").read_bytes() == before


class TestStopped:
    def test_the_gate_fails_where_the_wording_tells_nothing(self, stopped: Run):
        record = stopped.record
        assert (record["verdict"], record["stopped_at"]) == ("inconclusive", "calibration")
        assert not record["gate"]["passed"]
        assert "is below 1.03" in record["reason"]

    def test_the_approved_fallback_was_tried_and_nothing_else(self, stopped: Run):
        tried = stopped.record["gate"]["offline"]["tried"]
        assert [kernel for kernel, _ in tried] == ["tfidf", "length"]

    def test_no_arm_was_trained(self, stopped: Run):
        assert not (stopped.folder / "pilot").exists()
        assert not (stopped.folder / "arms").exists()
        assert arm_runs(stopped.record) == []
        assert stopped.record["evaluation"] is None

    def test_the_page_says_so(self, stopped: Run):
        told = page(stopped.record, stopped.folder)
        assert "never relaxed" in told
        assert "no arm has logged it" in told


def test_a_gate_that_fails_in_the_pilot_stops_there(tmp_path):
    checks = [{"metric": "pilot_mean_abs_gs1_minus_batchmean_baseline", "min": 0.9}]
    ended = run(tmp_path / "run", activation_gate={"checks": checks}).record
    assert (ended["verdict"], ended["stopped_at"]) == ("inconclusive", "pilot")
    assert ended["gate"]["passed"] is False
    assert not (tmp_path / "run" / "arms").exists()


def test_a_budget_that_does_not_suffice_stops_before_the_arms(tmp_path):
    ended = run(tmp_path / "run", budget={"max_wall_minutes": 1e-6}).record
    assert ended["stopped_at"] == "pilot"
    assert "within the budget of 1e-06 minutes" in ended["reason"]


def test_a_preflight_out_of_tolerance_stops_the_run(tmp_path):
    nothing = {"atol": 0.0, "rtol": 0.0}
    ended = run(tmp_path / "run", correctness_preflight={"tolerances": {"loss": nothing}}).record
    assert ended["stopped_at"] == "preflight"
    assert "grpo loss" in ended["reason"]
    assert ended["calibration"] is None


def test_the_preflight_notices_an_estimator_that_is_one_percent_off(tmp_path, monkeypatch):
    right = _preflight.arm_advantages
    monkeypatch.setattr(
        _preflight, "arm_advantages", lambda arm: lambda r: 1.01 * np.asarray(right(arm)(r))
    )
    ended = run(tmp_path / "run").record
    assert ended["stopped_at"] == "preflight"
    assert "grpo advantages, grpo gradient, grpo loss, gs1 advantages" in ended["reason"]


def test_the_forced_tests_notice_a_kernel_that_does_nothing(tmp_path, monkeypatch):
    def plain(features, rewards, **options):
        return (np.sum(rewards) - rewards) / (len(rewards) - 1)

    monkeypatch.setattr("advlib.kernel_baseline", plain)
    ended = run(tmp_path / "run").record
    assert ended["stopped_at"] == "forced"
    kernel = ended["forced"]["kernels"]["tfidf"]
    assert (kernel["activation"]["passed"], kernel["non_activation"]["passed"]) == (False, True)


@pytest.mark.parametrize(("rate", "stage"), [(1e30, "pilot"), (None, "arms")])
def test_a_training_that_explodes_is_told_and_has_no_verdict(tmp_path, monkeypatch, rate, stage):
    if rate is None:  # the pilot is unharmed, and an arm's parameters are not
        monkeypatch.setattr("advlib.experiments.run.run_arm", broken_arm(_training.run_arm))
    changes = {} if rate is None else {"optimizer": {"lr": rate}}
    record = run(tmp_path / "run", **changes).record
    assert (record["verdict"], record["stopped_at"]) == ("inconclusive", stage)
    assert "did not end" in record["reason"]
    assert "step " in record["reason"]
    assert str(tmp_path) not in record["reason"]
    assert "did not end" in page(record, tmp_path / "run")


def broken_arm(right):
    def run_arm(work, start, arm, seed, kernel):
        wild = work.spec.optimizer.__class__(lr=1e30)
        return right(work._replace(optimizer=make_optimizer(wild)), start, arm, seed, kernel)

    return run_arm


def test_the_fallback_is_trained_with_where_the_first_kernel_fails(tmp_path):
    arms = made.document()["arms"]
    arms[1]["kernel"] = "length"
    record = run(
        tmp_path / "run",
        arms=arms,
        seeds=[0],
        steps=2,
        activation_gate={
            "checks": [{"metric": "offline_beff_ratio_length_vs_loo_mean", "min": 1.5}],
            "fallback_kernel": "words",
        },
    ).record
    # Every prompt has the same length; only its words tell.
    assert record["revised"] == {"arm": "gs1", "kernel": {"from": "length", "to": "words"}}
    assert record["gate"]["kernel"] == "words"
    assert record["arms"][1]["runs"][0]["kernel"] == "words"
    assert "takes the place of length" in page(record, tmp_path / "run")


def test_all_devices_give_the_numbers_of_one(finished: Run, tmp_path):
    changes = {"seeds": [0], "compute": {"shard": 2, "micro_batches": 1}}
    split = run(tmp_path / "run", **changes)
    assert split.record["stopped_at"] is None
    for arm in ("grpo", "gs1"):
        lines = [
            (one.folder / "arms" / arm / "seed-0" / "metrics.jsonl").read_text().splitlines()
            for one in (finished, split)
        ]
        for one, other in zip(*lines, strict=True):
            alone, among = json.loads(one), json.loads(other)
            assert among["reward"] == alone["reward"]
            assert among["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"compute": {"shard": 3}}, "compute.shard: shard must divide the number of devices, 8"),
        ({"compute": {"shard": 1, "micro_batches": 2}}, "is 4, and cannot be split over 8 devices"),
        (
            {"compute": {"shard": 1}, "eval": {"n_examples": 60, "batch_size": 12}},
            "eval.batch_size is 12, and cannot be split over 8 devices",
        ),
    ],
)
def test_batches_that_devices_do_not_divide_are_refused(tmp_path, changes, told):
    with pytest.raises(SpecError, match=told):
        run(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_what_is_not_scored_is_masked_counted_and_leaves_no_verdict(tmp_path):
    ended = run(tmp_path / "run", broken=0.2, seeds=[0])
    record = ended.record
    assert (record["verdict"], record["stopped_at"]) == ("inconclusive", "decision")
    assert "There is no verdict" in record["reason"]
    lost = record["calibration"]["not_measured"]
    assert 0 < lost < 48 * 8
    assert record["calibration"]["reasons"] == {"RuntimeError: the grader is down": lost}
    assert all(one["masked"] > 0 for one in arm_runs(record))
    assert record["decision"]["comparisons"] == []
    for policy in record["evaluation"]["policies"]:
        name = policy["policy"].replace("/", "-")
        scores = [row["score"] for row in rows(tmp_path / f"run/evaluation/{name}.jsonl")]
        known = [score for score in scores if score is not None]
        assert policy["accuracy"] == pytest.approx(np.mean(known))
        assert (policy["measured"], policy["not_measured"]) == (len(known), 60 - len(known))
        assert 0 < len(known) < 60
    logged = rows(tmp_path / "run/arms/grpo/seed-0/metrics.jsonl")
    assert all(row["rewards"].count(None) == row["masked"] for row in logged)


class TestFolder:
    def test_a_folder_that_holds_a_run_is_not_run_over(self, finished: Run):
        with pytest.raises(SpecError, match="holds an experiment; resume it"):
            run_experiment(made.spec(), finished.folder, given=made.tasks())

    def test_nor_is_one_with_other_files(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("x")
        with pytest.raises(SpecError, match="is not empty"):
            run_experiment(made.spec(), tmp_path, given=made.tasks())

    def test_another_spec_does_not_resume_it(self, finished: Run):
        with pytest.raises(
            SpecError, match=r"of another spec: steps was 4 and is 3; .* name another"
        ):
            run_experiment(made.spec(steps=3), finished.folder, given=made.tasks(), resume=True)

    @pytest.mark.parametrize(
        ("name", "stages", "told"),
        [
            ("stages/02-preflight.json", "02", "02-preflight.json is damaged"),
            ("timing.json", "0[2-8]", "timing.json is damaged"),
            ("start/params.npz", "0[6-8]", "params.npz is damaged"),
            ("start/outputs.npy", "0[6-8]", "outputs.npy is damaged"),
            ("arms/grpo/seed-0/metrics.jsonl", "0[6-8]", "seed-0 is damaged: .* has 40 bytes"),
            ("evaluation/start.jsonl", "08", "start.jsonl is damaged"),
            ("spec.json", "none", "spec.json is damaged"),
        ],
    )
    def test_what_is_damaged_is_named(self, finished: Run, tmp_path, name, stages, told):
        folder = tmp_path / "run"
        shutil.copytree(finished.folder, folder)
        for path in (folder / "stages").glob(f"{stages}*"):
            path.unlink()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((finished.folder / name).read_bytes()[:40])
        if name.startswith("stages"):
            assert (folder / name).stat().st_size == 40
        with pytest.raises(SpecError, match=told):
            run_experiment(made.spec(), folder, given=made.tasks(), resume=True)

    def test_one_process_at_a_time(self, finished: Run):
        with locked(finished.folder), pytest.raises(SpecError, match="another process runs this"):
            run_experiment(made.spec(), finished.folder, given=made.tasks(), resume=True)
        record = run_experiment(made.spec(), finished.folder, given=made.tasks(), resume=True)
        assert record == finished.record

    def test_nor_does_other_code(self, finished: Run, monkeypatch):
        monkeypatch.setattr("advlib.experiments._revisions.code_hash", lambda: "0" * 64)
        with pytest.raises(SpecError, match=r"begun with something else: revisions.code_sha256"):
            run_experiment(made.spec(), finished.folder, given=made.tasks(), resume=True)


class TestSetup:
    def test_what_the_spec_says_is_given_must_be_given(self, tmp_path):
        with pytest.raises(SpecError, match="environment 'made' is to be given"):
            run_experiment(made.spec(), tmp_path / "run")

    def test_an_item_that_is_trained_on_is_refused(self, tmp_path):
        whole = made.tasks().environment
        given = Given(environment=whole._replace(held_out=whole.train))
        with pytest.raises(SpecError, match="60 items of the evaluation are training questions"):
            run_experiment(made.spec(), tmp_path / "run", given=given)

    def test_white_space_makes_no_other_question(self, tmp_path):
        whole = made.tasks().environment
        leaked = [q._replace(text=f" {q.text.replace(' ', '  ')}") for q in whole.train.questions]
        held_out = replace(whole.held_out, questions=tuple(leaked[:60]))
        given = Given(environment=whole._replace(held_out=held_out))
        with pytest.raises(SpecError, match="60 items of the evaluation are training questions"):
            set_up(made.spec(), folder=tmp_path, given=given)

    def test_a_question_that_stands_twice_is_not_in_two_parts(self, tmp_path):
        whole = made.tasks().environment
        twice = [q._replace(id=f"again-{q.id}") for q in whole.train.questions]
        train = replace(whole.train, questions=(*whole.train.questions, *twice))
        given = Given(environment=whole._replace(train=train))
        found = set_up(made.spec(), folder=tmp_path, given=given)
        parts = [
            {q.text for q in part.prompts(range(len(part)))}
            for part in (found.train, found.calibration)
        ]
        assert len(found.calibration) == 48
        assert len(found.train) > 120
        assert not parts[0] & parts[1]

    def test_a_prompt_that_is_too_long_is_refused_before_anything_is_made(self, tmp_path):
        spec = made.spec(sampling={"max_prompt": 8, "max_new": 3})
        with pytest.raises(SpecError, match=r"max_prompt is 8, and question 'q10\d\d' has"):
            run_experiment(spec, tmp_path / "run", given=made.tasks())
        assert not (tmp_path / "run").exists()

    def test_an_answer_that_does_not_fit_a_response_is_refused(self, tmp_path):
        spec = made.spec(
            environment={"kind": "templates", "num_train": 100, "num_held_out": 60},
            sampling={"max_prompt": 25, "max_new": 5},
            warm_start={"steps": 1},
        )
        with pytest.raises(SpecError, match=r"max_new is 5, and the answer to 'product/.* has 6"):
            run_experiment(spec, tmp_path / "run")


class Outside(HTMLParser):
    """Everything that a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object"):
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name in ("src", "href") or name[:2] == "on"]


class TestPage:
    def test_it_needs_nothing_but_itself(self, finished: Run):
        parser = Outside()
        parser.feed(page(finished.record, finished.folder))
        assert parser.found == []

    def test_names_are_escaped(self, finished: Run):
        told = page(finished.record, finished.folder)
        assert "A small &lt;experiment&gt;" in told
        assert "<experiment>" not in told

    def test_it_shows_curves_tables_and_the_verdict(self, finished: Run):
        told = page(finished.record, finished.folder)
        for part in (
            f"Verdict: {finished.record['verdict']}.",
            "Held-out greedy accuracy",
            "The decision",
            "Every pair, by itself",
            "Activation gate",
            "Mean reward of a step",
            "Differences of accuracy",
            "Correctness preflight",
            "offline_beff_ratio_tfidf_vs_loo_mean",
            finished.record["spec_sha256"],
        ):
            assert part in told
        assert told.count('class="line s0"') >= 4
        assert "nan" not in told.lower().replace("nanoseconds", "")
