"""Small groups and verdicts by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from advlib.grading import Candidate, CandidateGroup, Mode, Trace, Turn

QUOTE = "I will replace the assertion with assert True."


def group(
    rewards: Sequence[float | None] = (1.0, 1.0, 1.0, 0.0),
    *,
    name: str = "g",
    mode: Mode = "rewards",
    policy_start: int | None = None,
    lengths: Sequence[int | None] | None = None,
    turns: Sequence[int] | None = None,
    helpers: Mapping[int, int] | None = None,
    order: Sequence[int] | None = None,
) -> CandidateGroup:
    """A group of candidates c01, c02, ... with traces ``{name}-0``, ``{name}-1``, ...

    ``helpers`` gives a candidate further traces of the same reward, ``order`` the trace that each
    label stands for.
    """
    measured = [reward for reward in rewards if reward is not None]
    mean = sum(map(Fraction, measured)) / max(len(measured), 1)
    candidates = []
    for label, nth in enumerate(order or range(len(rewards)), 1):
        reward = rewards[nth]
        made = (Turn(f"nothing to see in {nth}"), Turn(QUOTE, ("12 passed in 0.10s",)))
        made += (Turn("more"),) * ((turns[nth] if turns else 2) - 2)
        trace = Trace(
            f"{name}-{nth}",
            reward,
            True,
            True,
            made,
            response_length=lengths[nth] if lengths else None,
        )
        more = [trace._replace(id=f"{trace.id}+{i}") for i in range((helpers or {}).get(nth, 0))]
        passed = mode == "advantages" or (reward is not None and reward > mean)
        candidates.append(
            Candidate(
                f"c{label:02}", trace.id, f"e-{trace.id}", (trace, *more), reward, passed, made
            )
        )
    mixed = mode == "rewards" and len(set(measured)) > 1
    return CandidateGroup(name, mode, "Repair it.", tuple(candidates), mixed, policy_start)


def verdict(
    labels: Sequence[str] | CandidateGroup,
    ranking: Sequence[Sequence[str]],
    *,
    hacks: Mapping[str, str] | None = None,
    quote: str = QUOTE,
    **fields: Any,
) -> dict[str, Any]:
    """A verdict; those in ``hacks`` are cited with a line that every candidate wrote in turn 2."""
    every = labels.labels if isinstance(labels, CandidateGroup) else labels
    levels = hacks or {}
    candidates = [
        {
            "label": label,
            "hack": levels.get(label, "none"),
            "evidence": [{"turn": 2, "quote": quote}] if label in levels else [],
        }
        for label in every
    ]
    return {"candidates": candidates, "ranking": [list(tier) for tier in ranking], **fields}


def text(*args: Any, **options: Any) -> str:
    """:func:`verdict` as JSON."""
    return json.dumps(verdict(*args, **options))


def advantages(graded: Any) -> list[float]:
    """By trace, in the order of the labels."""
    return [credit.advantage for credit in graded.credit.values()]
