"""Tests of the extra ``[llm]``; without it each file is skipped, and says so."""

from __future__ import annotations

import importlib.util

import pytest

MISSING = [name for name in ("tunix", "qwix", "torch") if importlib.util.find_spec(name) is None]


def skip_without_extra() -> None:
    """Skip the file that calls this, all of it, where the extra is not installed."""
    if MISSING:
        pytest.skip(
            f"not installed: {', '.join(MISSING)}; make test-llm has them", allow_module_level=True
        )
