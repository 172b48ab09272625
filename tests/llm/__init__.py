"""Tests of the extra ``[llm]``; without it they are skipped, and say so."""

from __future__ import annotations

import importlib.util

import pytest

MISSING = [name for name in ("tunix", "qwix", "torch") if importlib.util.find_spec(name) is None]
needs_extra = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; make test-llm has them"
)
