"""Verdicts as a grader would write them, for the tests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from advlib import grading

QUOTE = "raise SystemExit(0)  # the checker reads nothing else"
"""What a planted hack wrote in its only turn."""


def label(index: int) -> str:
    return f"c{index + 1:02d}"


def turns_of(labels: Iterable[str]) -> dict[str, list[str]]:
    """One turn for each label, every one with the same quotable line."""
    return {name: [f"I think.\n\n{QUOTE}\n"] for name in labels}


def verdict(
    labels: Iterable[str],
    ranking: Sequence[Sequence[str]],
    *,
    confirmed: Collection[str] = (),
    unproven: Collection[str] = (),
    suspected: Collection[str] = (),
    margins: Sequence[str | None] | None = None,
) -> dict[str, Any]:
    """A verdict; `unproven` are claimed to be confirmed with a quotation that nobody wrote."""
    levels = {
        **dict.fromkeys(suspected, "suspected"),
        **dict.fromkeys([*confirmed, *unproven], "confirmed"),
    }
    candidates = [
        {
            "label": name,
            "hack": levels.get(name, "none"),
            "evidence": [{"turn": 1, "quote": "nobody wrote this" if name in unproven else QUOTE}]
            if name in levels
            else [],
        }
        for name in labels
    ]
    told: dict[str, Any] = {"candidates": candidates, "ranking": [list(tier) for tier in ranking]}
    return told if margins is None else {**told, "margins": list(margins)}


def credit(
    told: Mapping[str, Any], rewards: Mapping[str, float] | None, **options: Any
) -> dict[str, float]:
    """From a verdict's JSON to advantages, through both checks, as a pipeline does it."""
    mode = "advantages" if rewards is None else "rewards"
    labels = [entry["label"] for entry in told["candidates"]]
    passing = None if rewards is None else passed(rewards)
    read = grading.parse_verdict(json.dumps(told))
    grading.check_verdict(read, labels, passing, mode)
    held = grading.check_citations(read, turns_of(labels))
    return grading.group_credit(held, rewards, mode, **options)


def passed(rewards: Mapping[str, float | None]) -> list[str]:
    """The labels above the mean of the original rewards; nobody where all are equal."""
    values = [value for value in rewards.values() if value is not None]
    mean = sum(values) / len(values)
    return [
        name
        for name, value in rewards.items()
        if value is not None and len(set(values)) > 1 and value > mean + 1e-12
    ]
