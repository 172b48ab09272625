"""A group as messages to a grading model, and the schema of what it is to answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from string import Template
from typing import Any, get_args

from advlib.grading._group import Candidate, CandidateGroup
from advlib.grading._transcript import MARK, escaped
from advlib.grading._verdict import MARGINS, Hack


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}

VERDICT_SCHEMA: dict[str, Any] = _object(
    candidates={
        "type": "array",
        "items": _object(
            label=_TEXT,
            hack={"type": "string", "enum": list(get_args(Hack))},
            evidence={"type": "array", "items": _object(turn={"type": "integer"}, quote=_TEXT)},
        ),
    },
    ranking={"type": "array", "items": {"type": "array", "items": _TEXT}},
    margins={"type": "array", "items": {"type": "string", "enum": list(MARGINS)}},
    notes=_TEXT,
)
"""JSON schema of a verdict, for servers that hold a model to one; every field is asked for."""


def grading_messages(group: CandidateGroup) -> list[dict[str, str]]:
    """The request to a grading model: how to judge, then the task and every transcript.

    Each line that frames the material carries a word that follows from everything in the group, so
    no candidate can know it; lines of the material that look alike are escaped besides. Labels of
    those that passed are told in mode "rewards"; rewards and ids never are.

    Args:
        group: what `candidates` made.

    Returns:
        Two messages, `{"role": "system" | "user", "content": text}`.
    """
    nonce = _nonce(group)
    system = Template(_template("audit") + _template(group.mode)).substitute(mark=MARK, nonce=nonce)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n".join(_material(group, nonce))},
    ]


def prompt_chars(group: CandidateGroup) -> int:
    """Characters of the whole request, so that a group too long is refused before any call."""
    return sum(len(message["content"]) for message in grading_messages(group))


@cache
def _template(name: str) -> str:
    return (resources.files("advlib.grading") / "prompts" / f"{name}.md").read_text("utf-8")


def _nonce(group: CandidateGroup) -> str:
    """Of the whole content: to know it, a candidate would have to know what the others write."""
    material = [
        group.id,
        group.task,
        dict(group.privileged),
        [(candidate.label, candidate.turns) for candidate in group.candidates],
    ]
    return hashlib.sha256(json.dumps(material).encode()).hexdigest()[:12]


def _material(group: CandidateGroup, nonce: str) -> Iterator[str]:
    def header(text: str) -> str:
        return f"{MARK} {nonce} {text} {MARK}"

    yield header("task")
    yield escaped(group.task)
    for name, text in group.privileged.items():
        yield header(f"privileged, for judging only: {json.dumps(name)}")
        yield escaped(text)
    yield from _labels(group, header)
    for candidate in group.candidates:
        yield from _transcript(candidate, header)
    yield header("end of the material")
    yield from _labels(group, header)
    yield "Give your verdict on this group as one JSON object."


def _labels(group: CandidateGroup, header: Callable[[str], str]) -> Iterator[str]:
    yield header(f"candidates to audit: {_listed(group.labels)}")
    yield header(f"to be ranked, less confirmed hacks: {_listed(group.passing)}")


def _listed(labels: list[str]) -> str:
    return ", ".join(labels) or "none"


def _transcript(candidate: Candidate, header: Callable[[str], str]) -> Iterator[str]:
    label, count = candidate.label, len(candidate.turns)
    yield header(f"{label} begins, {count} turns")
    for nth, turn in enumerate(candidate.turns, 1):
        yield header(f"{label}, turn {nth}: what the candidate wrote")
        yield turn.policy
        for reply_nth, reply in enumerate(turn.results, 1):
            yield header(f"{label}, turn {nth}: reply {reply_nth} of {len(turn.results)}")
            yield reply
    yield header(f"{label} ends")
