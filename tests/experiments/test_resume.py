"""Killed anywhere, resumed, and the same record to the last byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advlib.experiments import run_experiment
from tests.experiments import made
from tests.experiments.conftest import Run

ROOT = Path(__file__).parents[2]
STAGES = 15  # lines that a run of the small spec says


class Stop(BaseException):
    """As sudden as Ctrl-C: nothing in the package catches it."""


def test_a_run_says_as_many_lines_as_there_are_stages(finished: Run):
    assert len(finished.said) == STAGES


@pytest.mark.parametrize("stage", [0, 2, 4, 6, 8, 9, 13, 14])
def test_stopped_at_any_stage(finished: Run, tmp_path: Path, stage: int):
    said: list[str] = []

    def told(line: str) -> None:
        said.append(line)
        if len(said) == stage + 1:
            raise Stop

    with pytest.raises(Stop):
        run_experiment(made.spec(), tmp_path / "run", given=made.tasks(), told=told)
    assert not (tmp_path / "run" / "record.json").exists()
    resumed(finished, tmp_path / "run")


@pytest.mark.parametrize("answers", [5, 380, 392, 420, 452, 530])
def test_stopped_within_a_stage(finished: Run, tmp_path: Path, answers: int):
    given = made.tasks()
    whole, count = given.environment, 0

    def score(question, response):
        nonlocal count
        count += 1
        if count == answers:
            raise Stop
        return made.tasks().environment.train.score(question, response)

    parts = (replace(part, scorer=score) for part in whole)
    broken = given._replace(
        environment=whole._replace(**dict(zip(whole._fields, parts, strict=True)))
    )
    with pytest.raises(Stop):
        run_experiment(made.spec(), tmp_path / "run", given=broken)
    resumed(finished, tmp_path / "run")


def resumed(finished: Run, folder: Path) -> None:
    run_experiment(made.spec(), folder, given=made.tasks(), resume=True)
    for name in ("record.json", "calibration/rollouts.jsonl", "arms/gs1/seed-1/metrics.jsonl"):
        assert (folder / name).read_bytes() == (finished.folder / name).read_bytes(), name


PROGRAM = """
import sys
from advlib.experiments import run_experiment
from tests.experiments import made

run_experiment(
    made.spec(), sys.argv[1], given=made.tasks(), resume=True,
    told=lambda line: print(line, flush=True),
)
"""


def test_killed_by_the_system_twice(tmp_path: Path):
    """SIGKILL in the pilot and in an arm; an unbroken run in a process of the same kind."""
    cache = tmp_path / "compiled"

    def begin(folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "JAX_COMPILATION_CACHE_DIR": str(cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            },
        )

    with begin(tmp_path / "whole") as whole:
        assert whole.wait(600) == 0
    for line, wait in (("pilot", 0.5), ("arm gs1, seed 0", 0.2), (None, 0.0)):
        with begin(tmp_path / "killed") as process:
            if line is not None:
                assert process.stdout is not None
                assert any(told.startswith(line) for told in process.stdout)
                time.sleep(wait)
                process.send_signal(signal.SIGKILL)
                assert process.wait(600) == -signal.SIGKILL
            else:
                assert process.wait(600) == 0
    first, second = (tmp_path / name / "record.json" for name in ("whole", "killed"))
    assert first.read_bytes() == second.read_bytes()
