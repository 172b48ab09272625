"""``advlib experiment``: exit codes, what is printed, what lies in the folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from tests.experiments import made

PROGRAM = (sys.executable, "-c", "import sys; from advlib.cli import main; sys.exit(main())")
# Two arms without a kernel, and a policy that was never trained: quick, and it reaches its verdict.
PLAIN = {
    "environment": {"kind": "templates", "num_train": 100, "num_held_out": 40},
    "sampling": {"max_prompt": 25, "max_new": 3},
    "arms": [
        {"name": "grpo", "advantage": "group_mean", "group_size": 4, "groups_per_batch": 2},
        {
            "name": "loo",
            "advantage": "batch_leave_one_out",
            "group_size": 1,
            "groups_per_batch": 8,
        },
    ],
    "activation_gate": {"applicable": False, "reason": "no kernel is compared"},
    "seeds": [0],
    "steps": 2,
    "eval": {"n_examples": 40, "batch_size": 32},
    "decision_rule": {"criteria": [{"id": "primary", "weights": {"loo": 1, "grpo": -1}}]},
}


@pytest.fixture(autouse=True)
def plain_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def write(tmp_path: Path):
    def make(**changes: object) -> Path:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(made.document(**{**PLAIN, **changes})))
        return path

    return make


def test_from_a_spec_to_a_verdict_and_once_more(cli, write, tmp_path):
    spec, output = write(), tmp_path / "run"
    ended = cli("experiment", spec, "--output", output)
    assert ended.code == 0, ended.err
    record = json.loads((output / "record.json").read_text())
    assert record["verdict"] == "inconclusive"
    assert {"verdict", "arms", "gate", "evaluation"} <= set(record)
    assert "Verdict: inconclusive." in ended.out
    assert "arm grpo, seed 0" in ended.err
    page = (output / "report.html").read_text()
    assert "Held-out greedy accuracy" in page

    again = cli("report", output, "--html", tmp_path / "again.html")
    assert again.code == 0, again.err
    assert again.out == ended.out
    assert (tmp_path / "again.html").read_text() == page
    told = cli("report", output, "--json", "--output", tmp_path / "again.json")
    assert json.loads(told.out) == record
    assert json.loads((tmp_path / "again.json").read_text()) == record

    again = cli("experiment", spec, "--output", output)
    assert again.code == 2
    assert "holds an experiment; resume it, or name another" in again.err

    resumed = cli("experiment", spec, "--output", output, "--resume", "--json")
    assert resumed.code == 0
    assert json.loads(resumed.out) == record
    assert resumed.err == ""


def test_ctrl_c_in_the_middle_of_a_computation(write, tmp_path):
    """Taking the process down while XLA works must not crash it."""
    process = subprocess.Popen(
        [*PROGRAM, "experiment", str(write()), "--output", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(line.startswith("correctness preflight") for line in process.stderr)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().splitlines()
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
    assert told[-1] == f"advlib: interrupted; --resume goes on with {tmp_path / 'run'}"
    assert all("Traceback" not in line for line in told)
    assert not (tmp_path / "run" / "record.json").exists()


def test_a_gate_that_fails_has_an_exit_code_of_its_own(cli, write, tmp_path):
    spec = write(
        arms=made.document()["arms"],
        activation_gate=made.document()["activation_gate"],
        decision_rule=made.document()["decision_rule"],
        calibration={"tasks": 16, "rollouts": 2, "resamples": 20},
    )
    ended = cli("experiment", spec, "--output", tmp_path / "run", "--quiet")
    assert (ended.code, ended.out) == (3, "")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    # Nothing is ever right, so no ratio can be estimated, and what was not measured fails.
    assert (record["verdict"], record["stopped_at"]) == ("inconclusive", "calibration")
    assert "a number is needed; got NaN" in record["reason"]
    assert (tmp_path / "run" / "report.html").exists()


def test_check_says_what_to_expect_and_runs_nothing(cli, write, tmp_path):
    ended = cli("experiment", write(eval={"n_examples": 40}), "--check")
    assert ended.code == 0
    assert "±0.4295" in ended.out
    assert list(tmp_path.iterdir()) == [tmp_path / "spec.json"]


def test_the_demo_can_be_checked(cli):
    ended = cli("experiment", "demo", "--check", "--seed", 3)
    assert ended.code == 0
    assert "3,000" in ended.out


def test_what_is_expected_as_json_or_not_at_all(cli, write):
    ended = cli("experiment", write(eval={"n_examples": 40}), "--check", "--json")
    found = json.loads(ended.out)
    assert found["missing"] == []
    assert found["power"]["primary"]["half_width"] == pytest.approx(0.4295, abs=1e-4)
    ended = cli("experiment", write(eval={"n_examples": 40}), "--check", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_what_a_spec_names_and_is_not_there_is_told(cli, write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spec = write(environment={"kind": "jsonl", "train": "~/a.jsonl", "held_out": "b.jsonl"})
    told = " ".join(cli("experiment", spec, "--check").out.split())
    assert told.endswith("not there yet: ~/a.jsonl, b.jsonl")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a.jsonl").touch()
    assert "not there yet: b.jsonl\n" in cli("experiment", spec, "--check").out
    (tmp_path / "b.jsonl").touch()
    assert "the spec can be run" in cli("experiment", spec, "--check").out


def test_the_demo_is_one_beside_a_folder_of_that_name(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert cli("experiment", "demo", "--check").code == 0


def test_too_little_memory_is_told_with_what_takes_less(cli, write, tmp_path, monkeypatch):
    def run(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n at"
        )

    monkeypatch.setattr("advlib.experiments.run_experiment", run)
    ended = cli("experiment", write(), "--output", tmp_path / "run")
    assert ended.code == 2
    assert "not enough memory; less is taken with more compute.micro_batches" in ended.err
    assert ended.err.endswith("Out of memory allocating 9 bytes.\n")


def test_a_run_under_way_is_reported_on_as_far_as_it_is(cli, write, tmp_path, monkeypatch):
    from advlib.experiments import run as run_module

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "run_arm", stop)
        ended = cli("experiment", write(), "--output", tmp_path / "run")
    assert ended.code == 130
    assert ended.err.endswith(f"advlib: interrupted; --resume goes on with {tmp_path / 'run'}\n")
    ended = cli("report", tmp_path / "run", "--html", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    assert "No verdict yet" in ended.out
    assert "pilot, 0 of 2 arms, 0 of 3 evaluations" in " ".join(ended.out.split())
    assert "No verdict yet" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"extra": 1}, "spec.json: Object contains unknown field `extra` at `$`"),
        ({"accept_low_power": False}, "is validated against the margin -0.05 in 0.0% of runs"),
        ({"steps": 0}, "steps must be at least 1"),
        (
            {"environment": {"kind": "jsonl", "train": "no.jsonl", "held_out": "none.jsonl"}},
            "no.jsonl: No such file",
        ),
    ],
)
def test_a_spec_that_cannot_be_run_is_refused_in_one_line(cli, write, tmp_path, changes, told):
    ended = cli("experiment", write(**changes), "--output", tmp_path / "run")
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_named(cli, write, tmp_path):
    assert "--output DIR is needed" in cli("experiment", write()).err
    assert cli("experiment", tmp_path / "none.json", "--output", tmp_path / "run").code == 2
    ended = cli("experiment", write(), "--seed", 1, "--output", tmp_path / "run")
    assert "--seed is for the demo" in ended.err


class TestReportsThatAreRefused:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "record.json").write_text('{"format": "advlib.experiment/1"}')
        return folder

    @pytest.mark.parametrize(
        "words",
        [
            ("--reward", "a"),
            ("--format", "advlib"),
            ("--group-by", "task"),
            ("--on-failure", "x=mask"),
            ("--count-as-zero", "x"),
        ],
    )
    def test_options_of_rollouts(self, cli, run, words):
        ended = cli("report", run, *words)
        assert ended.code == 2
        assert f"{words[0]} is for rollouts" in ended.err

    def test_a_run_beside_other_paths(self, cli, run, tmp_path):
        ended = cli("report", tmp_path / "a.jsonl", run)
        assert ended.code == 2
        assert f"{run} is the folder of an experiment" in ended.err

    @pytest.mark.parametrize("text", ["{", "[]", '{"verdict": "validated"}', "[" * 5000])
    def test_a_record_of_something_else(self, cli, run, text):
        (run / "record.json").write_text(text)
        ended = cli("report", run)
        assert ended.code == 2
        assert str(run / "record.json") in ended.err

    def test_a_record_that_lacks_something(self, cli, run):
        ended = cli("report", run)
        assert ended.code == 2
        assert "has no 'decision': another version of advlib wrote it" in ended.err

    def test_the_record_is_not_written_over(self, cli, run):
        ended = cli("report", run, "--output", run / "record.json")
        assert ended.code == 2
        assert "is an input" in ended.err
