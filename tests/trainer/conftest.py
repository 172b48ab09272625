"""Fixtures of the trainer's tests."""

from __future__ import annotations

from tests.quick import quick_to_compile

__all__ = ["quick_to_compile"]
