"""One trace of the v1 layout: its prompt, what was sampled, its reward and what graders said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from advlib.adapters._json import Record, fields, objects, value
from advlib.adapters._values import (
    Place,
    Reward,
    measure,
    messages_text,
    number,
    read_reward,
    text_of,
    whole,
)
from advlib.adapters.schema import MISSING, NULL

# Stop conditions that cut a response short.
_LIMITS = frozenset(
    {
        "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens",
        "context_length", "compaction_failed",
    }
)  # fmt: skip
_MARGINS = {"slight": 0.25, "clear": 0.5, "large": 1.0}


class Response(NamedTuple):
    """What the policy sampled."""

    model: str | None
    length: int | None
    truncated: bool | None


def reward_of(trace: Record, place: Place) -> tuple[Reward, list[tuple[str, float | None]] | None]:
    """The sum of score x weight over the scored parts, and the scores.

    A part that is null was expected and never scored: it adds nothing, and its component is null.
    A trace without any scored part has no reward; it is not a zero.
    """
    if "rewards" not in trace:
        return read_reward(trace, place)[0], None
    rewards = value(trace["rewards"])
    if not isinstance(rewards, dict):
        return (Reward(None, NULL) if rewards is None else measure("no object")), None
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
        measured = measure(score)
        factor = measure(1.0 if weight is None else weight)
        parts.append((name, measured.number))
        if measured.number is None or factor.number is None:
            wrong = measured.reason or factor.reason
            reason = wrong if reason in (None, MISSING, NULL) else reason
            continue
        total += measured.number * factor.number
        reason = None if reason in (MISSING, NULL) else reason
    return (measure(total) if reason is None else Reward(None, reason)), parts or None


def response_of(trace: Record) -> Response:
    """Model, sampled tokens and whether a limit ended it, from the calls, else from the tokens."""
    calls = objects(trace.get("calls"))
    agent = fields(trace.get("agent"))
    model = text_of(*(value(call.get("model")) for call in calls)) or text_of(
        value(fields(agent.get("config")).get("model"))
    )
    used = [whole(value(fields(call.get("usage")).get("completion_tokens"))) for call in calls]
    counted = [tokens for tokens in used if tokens is not None]
    length: int | None = sum(counted)
    if not counted:
        masks = [value(node.get("mask")) for node in objects(trace.get("nodes"))]
        known = [mask for mask in masks if isinstance(mask, list) and mask]
        length = sum(mask.count(True) for mask in known) if known else None
    stop = value(trace.get("stop_condition"))
    done = [call for call in calls if value(call.get("error")) is None]
    truncated: bool | None = None
    if stop is not None or done:
        finish = value(done[-1].get("finish_reason")) if done else None
        truncated = (isinstance(stop, str) and stop in _LIMITS) or finish == "length"
    return Response(model, length, truncated)


def prompt_of(trace: Record, data: Record) -> str | None:
    """The messages on the way from a root to the first sampled node, else the task's own prompt."""
    nodes = objects(trace.get("nodes"))
    sampled = [value(node.get("sampled")) is True for node in nodes]
    if not nodes:
        system, prompt = value(data.get("system_prompt")), value(data.get("prompt"))
        texts = [text for text in (system, messages_text(prompt)) if isinstance(text, str) and text]
        return "\n\n".join(texts) or None
    if not any(sampled):
        return messages_text([value(node.get("message")) for node in nodes])
    at = sampled.index(True)
    messages = []
    # A parent stands before its children; anything else would be no forest.
    while (parent := whole(value(nodes[at].get("parent")))) is not None and 0 <= parent < at:
        at = parent
        messages.append(value(nodes[at].get("message")))
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


def credit(info: Record) -> dict[str, Any]:
    """The table's columns that a trace's `info` speaks of, and no others."""
    found: dict[str, Any] = {}
    if "kind" in info:
        found["kind"] = text_of(value(info["kind"]))
    gar = fields(info.get("gar"))
    verdict = fields(info.get("group_verdict"))
    for source in (gar, info):  # the scalar beside `gar` is the later one
        if "advantage" in source:
            found["advantage"] = number(value(source["advantage"]))
    if "tier" in gar:
        tier = whole(value(gar["tier"]))
        found["tier"] = tier if tier is not None and -(2**31) <= tier < 2**31 else None
    if "hack" in gar:
        found["hack"] = text_of(value(gar["hack"]))
    for source in (verdict, gar):
        if "margins" in source:
            found["margins"] = _margins(value(source["margins"]))
    return found


def _margins(items: Any) -> list[float] | None:
    if not isinstance(items, list):
        return None
    gaps = [_MARGINS.get(item) if isinstance(item, str) else number(item) for item in items]
    return None if None in gaps else [gap for gap in gaps if gap is not None]
