"""What was written and is not what it was: named, and never a part of a result."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from advlib.cli._experiment_page import page
from advlib.experiments import SpecError, _training, run_experiment
from advlib.experiments._folder import is_full
from tests.experiments import made
from tests.experiments.conftest import Run


@pytest.fixture
def copied(finished: Run, tmp_path: Path) -> Path:
    shutil.copytree(finished.folder, tmp_path / "run")
    return tmp_path / "run"


def resume(folder: Path) -> dict:
    return run_experiment(made.spec(), folder, given=made.tasks(), resume=True)


def again(folder: Path, stages: str) -> None:
    for path in (folder / "stages").glob(f"{stages}*"):
        path.unlink()


@pytest.mark.parametrize(
    "stage",
    [
        "01-start", "02-preflight", "03-forced", "04-calibration", "05-pilot",
        "06-arms-gs1-seed-0", "07-evaluation-start", "08-decision",
    ],
)  # fmt: skip
@pytest.mark.parametrize("change", ["empty", "number"])
def test_a_stage_that_says_something_else_is_refused(copied: Path, stage: str, change: str):
    path = copied / "stages" / f"{stage}.json"
    found = json.loads(path.read_text())
    found = {} if change == "empty" else {**found, "one more": 1}
    path.write_text(json.dumps(found))
    with pytest.raises(SpecError, match=f"{stage}.json is damaged: it holds something else"):
        resume(copied)


def scored_right(folder: Path) -> None:
    path = folder / "evaluation" / "gs1-seed-0.jsonl"
    path.write_text(path.read_text().replace('"score": 0.0', '"score": 1.0', 1))


def scored_in_part(folder: Path) -> None:
    path = folder / "evaluation" / "start.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:9]))


def another_final(folder: Path) -> None:
    arms = folder / "arms"
    shutil.copy(arms / "grpo/seed-0/final.npz", arms / "gs1/seed-0/final.npz")


def another_start(folder: Path) -> None:
    shutil.copy(folder / "arms/grpo/seed-0/final.npz", folder / "start/params.npz")


def other_outputs(folder: Path) -> None:
    np.save(folder / "start/outputs.npy", np.zeros((2, 3), np.float32))


def times_that_are_none(folder: Path) -> None:
    (folder / "timing.json").write_text('{"seconds": 1}')


@pytest.mark.parametrize(
    ("change", "stages", "told"),
    [
        (scored_right, "08", "gs1-seed-0.jsonl is damaged"),
        (scored_in_part, "08", "start.jsonl is damaged"),
        (another_final, "0[78]", "gs1/seed-0/final.npz is damaged: it holds other parameters"),
        (another_start, "0[2-8]", "start/params.npz is damaged: it holds other parameters"),
        (another_start, "0[78]", "start/params.npz is damaged: it holds other parameters"),
        (other_outputs, "0[6-8]", "outputs.npy is damaged"),
        (times_that_are_none, "08", "timing.json is damaged: 'seconds' holds no numbers"),
    ],
)
def test_whole_files_of_something_else(
    copied: Path, change: Callable[[Path], None], stages: str, told: str
):
    again(copied, stages)
    change(copied)
    with pytest.raises(SpecError, match=told):
        resume(copied)


def test_a_stage_whose_file_is_gone_is_done_again(finished: Run, copied: Path):
    again(copied, "0[78]")
    assert resume(copied) == finished.record


def test_a_checkpoint_without_its_arrays_is_named(copied: Path):
    again(copied, "06-arms-gs1-seed-0")
    shutil.rmtree(copied / "arms/gs1/seed-0/checkpoints/4/state")
    with pytest.raises(
        SpecError, match=r"gs1/seed-0 is damaged: .* without it, the arm is trained"
    ):
        resume(copied)


def test_the_page_draws_no_curve_of_another_run(finished: Run, copied: Path):
    shutil.copy(copied / "arms/grpo/seed-0/metrics.jsonl", copied / "arms/gs1/seed-0/metrics.jsonl")
    with pytest.raises(SpecError, match=r"gs1/seed-0/metrics.jsonl is damaged"):
        page(finished.record, copied)


def test_an_answer_that_changed_meanwhile(finished: Run):
    whole = made.tasks().environment
    held_out = list(whole.held_out.questions)
    held_out[3] = held_out[3]._replace(answer=Fraction(held_out[3].answer) + 1)
    given = made.tasks()._replace(
        environment=whole._replace(held_out=replace(whole.held_out, questions=tuple(held_out)))
    )
    with pytest.raises(SpecError, match=r"begun with something else: questions.held_out.sha256"):
        run_experiment(made.spec(), finished.folder, given=given, resume=True)


class TestFullDisk:
    def full(self, *_: object, **__: object) -> None:
        raise ValueError("RESOURCE_EXHAUSTED: failed to write: No space left on device")

    @pytest.mark.parametrize("stages", ["0[5-8]", "0[6-8]"])
    def test_it_is_told_as_one_and_blames_no_file(
        self, finished: Run, copied: Path, monkeypatch, stages: str
    ):
        """The arm's folder is there already: what it holds is not damaged."""
        again(copied, stages)
        (copied / "record.json").unlink()
        monkeypatch.setattr(_training, "train", self.full)
        with pytest.raises(OSError, match="No space") as refused:
            resume(copied)
        monkeypatch.undo()
        assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(copied))
        assert resume(copied) == finished.record

    def test_wherever_it_stands_in_a_chain(self):
        first = OSError(errno.ENOSPC, "none left")
        second = RuntimeError("Event loop is closed")
        second.__context__ = first
        assert is_full(second)
        assert not is_full(RuntimeError("Event loop is closed"))
