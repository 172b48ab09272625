"""The command line without a process, and the real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from advlib.cli import main

REAL = Path(__file__).parents[3] / "shared" / "rollouts"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs the command line in this process."""

    def run(*words: object) -> Ended:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ended(code, out, err)

    return run


@pytest.fixture
def real_rollouts() -> Path:
    if not REAL.is_dir():
        pytest.skip(f"the folder of real rollout files, {REAL}, is absent")
    return REAL
