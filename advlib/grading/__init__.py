"""Grading groups of rollouts: verdicts, citations, graders, and the credit that follows."""

from __future__ import annotations
