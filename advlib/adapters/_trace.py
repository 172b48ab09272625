"""One trace of the v1 layout: its prompt, what was sampled, its reward and what graders said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from advlib.adapters._json import UNSET, value
from advlib.adapters._values import (
    Reward,
    get,
    measure,
    messages_text,
    number,
    text_of,
    whole,
)
from advlib.adapters.schema import MISSING, NOT_A_NUMBER, NULL

# Stop conditions that cut a response short.
_LIMITS = frozenset(
    {
        "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens",
        "context_length", "compaction_failed",
    }
)  # fmt: skip
_MARGINS = {"slight": 0.25, "clear": 0.5, "large": 1.0}


class Node(msgspec.Struct, gc=False):
    """A message, and what is known of its tokens."""

    parent: Any = UNSET
    message: Any = UNSET
    sampled: Any = UNSET
    mask: msgspec.Raw | msgspec.UnsetType = UNSET
    advantages: msgspec.Raw | msgspec.UnsetType = UNSET


class Trace(msgspec.Struct, gc=False):
    """The fields of a trace that the table has a place for."""

    id: Any = UNSET
    task: Any = UNSET
    agent: Any = UNSET
    nodes: list[Node] | msgspec.UnsetType = UNSET
    calls: Any = UNSET
    rewards: Any = UNSET
    reward: Any = UNSET
    info: Any = UNSET
    ok: Any = UNSET
    errors: Any = UNSET
    stop_condition: Any = UNSET
    mask_sample: Any = UNSET


class Response(NamedTuple):
    """What the policy sampled."""

    model: str | None
    length: int | None
    truncated: bool | None


def objects(items: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def reward_of(trace: Trace) -> tuple[Reward, list[tuple[str, float | None]] | None]:
    """The sum of score x weight over the scored parts, and the scores.

    A part that is null was expected and never scored: it adds nothing, and its component is null.
    A trace without any scored part has no reward; it is not a zero.
    """
    rewards = trace.rewards
    if rewards is UNSET:
        return measure(trace.reward), None
    if not isinstance(rewards, dict):
        return (None, NULL if rewards is None else NOT_A_NUMBER), None
    total = 0.0
    reason: str | None = MISSING
    parts: list[tuple[str, float | None]] = []
    for name, part in rewards.items():
        score, weight = (
            (part.get("score"), part.get("weight"))
            if isinstance(part, dict)
            else (
                part,
                None,
            )
        )
        if score is None:
            parts.append((name, None))
            reason = NULL if reason == MISSING else reason
            continue
        measured, wrong = measure(score)
        factor, wrong_factor = measure(1.0 if weight is None else weight)
        parts.append((name, measured))
        if measured is None or factor is None:
            reason = (wrong or wrong_factor) if reason in (None, MISSING, NULL) else reason
            continue
        total += measured * factor
        reason = None if reason in (MISSING, NULL) else reason
    return (measure(total) if reason is None else (None, reason)), parts or None


def response_of(trace: Trace) -> Response:
    """Model, sampled tokens and whether a limit ended it, from the calls, else from the tokens."""
    calls = objects(trace.calls)
    named = (get(get(trace.agent, "config"), "model"),)
    model = text_of(*(call.get("model") for call in calls), *named)
    used = [whole(get(call.get("usage"), "completion_tokens")) for call in calls]
    counted = [tokens for tokens in used if tokens is not None]
    length: int | None = sum(counted)
    if not counted:
        masks = [value(node.mask) for node in trace.nodes or ()]
        known = [mask for mask in masks if isinstance(mask, list) and mask]
        length = sum(mask.count(True) for mask in known) if known else None
    stop = None if trace.stop_condition is UNSET else trace.stop_condition
    done = [call for call in calls if call.get("error") is None]
    truncated: bool | None = None
    if stop is not None or done:
        finish = done[-1].get("finish_reason") if done else None
        truncated = (isinstance(stop, str) and stop in _LIMITS) or finish == "length"
    return Response(model, length, truncated)


def prompt_of(trace: Trace, data: Any) -> str | None:
    """The messages on the way from a root to the first sampled node, else the task's own prompt."""
    nodes = trace.nodes or []
    if not nodes:
        texts = [get(data, "system_prompt"), messages_text(get(data, "prompt"))]
        return "\n\n".join(text for text in texts if isinstance(text, str) and text) or None
    at = next((i for i, node in enumerate(nodes) if node.sampled is True), None)
    if at is None:
        return messages_text([node.message for node in nodes])
    messages = []
    # A parent stands before its children; anything else would be no forest.
    while (parent := whole(nodes[at].parent)) is not None and 0 <= parent < at:
        at = parent
        messages.append(nodes[at].message)
    return messages_text(messages[::-1])


def token_advantage(streams: Iterable[Any]) -> float | None:
    """The mean of the token advantages that are not 0; 0.0 if all are, None if there is none."""
    seen = False
    total, count = 0.0, 0
    for stream in streams:
        for item in stream if isinstance(stream, list) else ():
            advantage = number(item)
            seen = seen or advantage is not None
            if advantage:
                total, count = total + advantage, count + 1
    if not seen:
        return None
    return total / count if count else 0.0


def credit(info: Any) -> dict[str, Any]:
    """The table's columns that a trace's `info` speaks of, and no others."""
    found: dict[str, Any] = {}
    if not isinstance(info, dict):
        return found
    if "kind" in info:
        found["kind"] = text_of(info["kind"])
    gar: Any = info["gar"] if isinstance(info.get("gar"), dict) else {}
    verdict = info.get("group_verdict")
    for source in (gar, info):  # the scalar beside `gar` is the later one
        if "advantage" in source:
            found["advantage"] = number(source["advantage"])
    if "tier" in gar:
        tier = whole(gar["tier"])
        found["tier"] = tier if tier is not None and -(2**31) <= tier < 2**31 else None
    if "hack" in gar:
        found["hack"] = text_of(gar["hack"])
    for source in (verdict, gar):
        if isinstance(source, dict) and "margins" in source:
            found["margins"] = _margins(source["margins"])
    return found


def _margins(items: Any) -> list[float] | None:
    if not isinstance(items, list):
        return None
    gaps = [_MARGINS.get(item) if isinstance(item, str) else number(item) for item in items]
    return None if None in gaps else [gap for gap in gaps if gap is not None]
