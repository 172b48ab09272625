"""A run that is killed and resumed ends with the bits of a run that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent.parent


def start(folder: Path, *options: str) -> int:
    command = [sys.executable, "-W", "error", "-m", "tests.trainer.runs", str(folder), "6"]
    # The same program in every process, compiled by the first.
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_killed_twice_and_resumed(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole) == 0
    # In the middle of scoring step 1, before any checkpoint; then of step 3, one step after one.
    assert start(broken, "--kill-at-score", "13") == -signal.SIGKILL
    assert len((broken / "metrics.jsonl").read_bytes().splitlines()) == 1
    assert start(broken, "--kill-at-score", "29") == -signal.SIGKILL
    assert len((broken / "metrics.jsonl").read_bytes().splitlines()) == 3
    assert start(broken) == 0
    for name in ("metrics.jsonl", "params.npy", "opt_state.npy"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert np.load(whole / "params.npy").size > 1000
