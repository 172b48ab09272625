"""Where real rollout files are, if they are."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "rollouts"


@pytest.fixture
def shared_rollouts() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"no real rollout files: the folder {SHARED} is absent")
    return SHARED
