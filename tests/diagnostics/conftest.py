"""Where real graded solutions are, if they are."""

from __future__ import annotations

from pathlib import Path

import pytest

GSM8K = Path(__file__).parents[3] / "shared" / "rollouts" / "gsm8k"


@pytest.fixture
def gsm8k() -> Path:
    if not GSM8K.is_dir():
        pytest.skip(f"no real rollout files: the folder {GSM8K} is absent")
    return GSM8K
