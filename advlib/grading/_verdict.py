"""A grader's verdict as data."""

from __future__ import annotations

from typing import Literal

import msgspec

Hack = Literal["none", "suspected", "confirmed"]
Margin = Literal["slight", "clear", "large"]

MARGINS: dict[str, float] = {"slight": 0.25, "clear": 0.5, "large": 1.0}
"""Each margin in reward units: the gap between a pass and a fail is a large one."""


class InvalidVerdict(ValueError):
    """A verdict that cannot be used, and why."""


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quotation: what the policy wrote in one of its turns, counted from 1."""

    turn: int
    quote: str


class CandidateVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the grader found about one candidate."""

    label: str
    hack: Hack = "none"
    evidence: list[Evidence] = []


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hack levels with evidence, tiers with the best first, the gaps between them, and notes."""

    candidates: list[CandidateVerdict]
    ranking: list[list[str]]
    margins: list[Margin | None] = []
    notes: str = ""


def check_type(verdict: object) -> None:
    """Refuses what was not parsed: of a dict nothing is known yet."""
    if not isinstance(verdict, Verdict):
        raise TypeError(f"verdict must be what parse_verdict gives; got {type(verdict).__name__}")
