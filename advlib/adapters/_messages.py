"""Messages of the three layouts as transcripts have them, less what no grader may see.

Hidden reasoning is dropped, whatever its place: `reasoning_content`, reasoning items, thinking
parts. What is no text (images, sounds, files) leaves a short marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from advlib.adapters._json import UNSET, value
from advlib.adapters._trace import Node
from advlib.adapters._values import get, label, text_of, whole
from advlib.grading import Message, ToolCall

_TEXT = ("text", "input_text", "output_text")
_HIDDEN = ("reasoning", "reasoning_text", "summary_text", "thinking", "redacted_thinking")
_NO_WORD = re.compile(r"[^a-z_]+")


def forest(nodes: Iterable[Node]) -> list[Message]:
    """Messages of a v1 trace, one a node."""
    return [
        _message(node.message, sampled=node.sampled is True, parent=whole(node.parent))
        for node in nodes
    ]


def chat(prompt: Any, completion: Any) -> list[Message]:
    """Messages of a legacy rollout, one after the other: the policy wrote the completion's."""
    context = [_message(item, sampled=False) for item in _as_messages(prompt, "user")]
    sampled = [_message(item, sampled=True) for item in _as_messages(completion, "assistant")]
    return _in_line(context + sampled)


def responses(items: Any) -> list[Message]:
    """Messages of a Responses output: the items of one model call are one message.

    A call ends where something else than the model speaks, after an item that carries the tokens of
    the call, and before a reasoning item, with which the next one begins.
    """
    messages: list[Message] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    wrote = False

    def close() -> None:
        nonlocal wrote
        if wrote:
            text = "\n".join(text for text in texts if text)
            messages.append(Message("assistant", text, tuple(calls), sampled=True))
        texts.clear()
        calls.clear()
        wrote = False

    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        role = text_of(item.get("role")) or "assistant"
        if kind == "function_call_output":
            close()
            call_id = label(item.get("call_id"))
            messages.append(Message("tool", visible(item.get("output")), call_id=call_id))
            continue
        if kind in (None, "message") and role != "assistant":
            close()
            messages.append(_message(item, sampled=False))
            continue
        if kind == "reasoning":
            if texts or calls:
                close()
        elif kind in (None, "message"):
            texts.append(visible(item.get("content")))
        elif kind in ("function_call", "mcp_call"):
            calls.append(_call({**item, "id": item.get("call_id") or item.get("id")}))
        else:
            texts.append(_marker(kind))
        wrote = True
        if kind == "mcp_call":  # which the server answered inside the same item
            close()
            answer = item.get("output") or item.get("error")
            messages.append(Message("tool", visible(answer), call_id=label(item.get("id"))))
        elif item.get("generation_token_ids"):
            close()
    close()
    return _in_line(messages)


def visible(content: Any) -> str:
    """The text of a content: a string, or its parts, one a line; anything else as JSON."""
    if isinstance(content, str):
        return content
    if content is None or content is UNSET:
        return ""
    if isinstance(content, dict) and "type" in content:
        content = [content]
    if not isinstance(content, list):
        return _as_json(content)
    return "\n".join(text for part in content if (text := _part(part)) is not None)


def _part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    kind = get(part, "type")
    if kind in _HIDDEN:
        return None
    if kind in _TEXT or kind is None:
        text = get(part, "text")
        return text if isinstance(text, str) else _as_json(part)
    if kind == "refusal":
        return text_of(get(part, "refusal")) or ""
    return _marker(kind)


def _marker(kind: Any) -> str:
    word = _NO_WORD.sub("", kind.lower())[:40] if isinstance(kind, str) else ""
    return "[image]" if "image" in word else f"[{word or 'part'}]"


def _as_json(item: Any) -> str:
    try:
        return json.dumps(item, ensure_ascii=False)
    except (ValueError, RecursionError):  # integers without end, nesting without end
        return "[part]"


def _as_messages(messages: Any, role: str) -> Sequence[Any]:
    if isinstance(messages, str):
        return [{"role": role, "content": messages}]
    return messages if isinstance(messages, list) else ()


def _message(item: Any, *, sampled: bool, parent: int | None = None) -> Message:
    if isinstance(item, str):
        item = {"role": "assistant" if sampled else "user", "content": item}
    role = text_of(get(item, "role")) or ""
    calls = get(item, "tool_calls") if role == "assistant" else None
    return Message(
        role,
        visible(get(item, "content")),
        tuple(_call(call) for call in calls) if isinstance(calls, list) else (),
        label(get(item, "tool_call_id")),
        sampled and role == "assistant",
        parent,
    )


def _call(call: Any) -> ToolCall:
    """A call, flat or under `function`, or either as a JSON string."""
    if isinstance(call, str):
        decoded = _decoded(call)
        if not isinstance(decoded, dict):
            return ToolCall("", call)
        call = decoded
    inner = get(call, "function")
    fields = inner if isinstance(inner, dict) else call
    names = (get(call, "namespace"), get(fields, "name"))
    arguments = get(fields, "arguments")
    return ToolCall(
        ".".join(name for name in names if isinstance(name, str) and name),
        arguments if isinstance(arguments, str) else visible(arguments),
        label(get(call, "id")),
    )


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _in_line(messages: Iterable[Message]) -> list[Message]:
    return [message._replace(parent=at - 1 if at else None) for at, message in enumerate(messages)]


def branch_masks(nodes: Sequence[Node]) -> tuple[tuple[bool, ...], ...]:
    """For each branch, root to leaf, which tokens were sampled; none where there are no tokens."""
    masks = [_flags(value(node.mask)) for node in nodes]
    if not any(masks):
        return ()
    parents = [_parent(node, at) for at, node in enumerate(nodes)]
    inner = set(parents)
    branches = []
    for leaf in range(len(nodes)):
        if leaf in inner:
            continue
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = parents[at]
        branches.append(tuple(flag for at in reversed(path) for flag in masks[at]))
    return tuple(branches)


def _parent(node: Node, at: int) -> int | None:
    parent = whole(node.parent)
    return parent if parent is not None and 0 <= parent < at else None


def _flags(mask: Any) -> list[bool]:
    return [flag == 1 for flag in mask] if isinstance(mask, list) else []


def responses_mask(items: Any) -> tuple[tuple[bool, ...], ...]:
    """Of a Responses output, as one branch; none where its contexts are not one growing text."""
    seen: list[Any] = []
    mask: list[bool] = []
    for item in items if isinstance(items, list) else ():
        sampled, context = get(item, "generation_token_ids"), get(item, "prompt_token_ids")
        if not isinstance(sampled, list) or not isinstance(context, list) or not sampled:
            continue
        if context[: len(seen)] != seen:
            return ()
        mask += [False] * (len(context) - len(seen)) + [True] * len(sampled)
        seen = context + sampled
    return (tuple(mask),) if mask else ()
