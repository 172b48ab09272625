"""Bodies of a chat completions server: what was asked for, what came back, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

_Number = TypeVar("_Number", int, float)

_LARGEST = 2**53  # a number beyond it is none that a server counted
LONGEST_MESSAGE = 200  # characters of a server's words that an error shows


class Usage(NamedTuple):
    """Tokens and cost of one response; None where it does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


class Completion(NamedTuple):
    """One response body.

    Attributes:
        text: of the first choice; empty where there is none.
        finish_reason: of the first choice.
        model: what answered, None where it does not say.
        usage: what it took.
        error: the server's words and its code where the body is an error, else None.
    """

    text: str
    finish_reason: str | None
    model: str | None
    usage: Usage
    error: tuple[str, int | None] | None = None


def completion(body: bytes) -> Completion:
    """A response body, read as far as it has the documented shape.

    Raises:
        ValueError: it is not one JSON object.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object was wanted, got {type(document).__name__}")
    choice = _first(document.get("choices"))
    message = _mapping(choice.get("message"))
    told = document.get("error", None) or choice.get("error", None)
    return Completion(
        text=_text(message.get("content")),
        finish_reason=_string(choice.get("finish_reason")),
        model=_string(document.get("model")),
        usage=_usage(_mapping(document.get("usage"))),
        error=None if told is None else (_words(told, ""), _whole(_mapping(told).get("code"))),
    )


def server_message(body: bytes) -> str:
    """What a server says in the body of an error: one line, not cut yet."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        document = None
    raw = body.decode("utf-8", "replace")
    if not isinstance(document, dict):
        return one_line(raw)
    for key in ("error", "message", "detail"):  # OpenAI and most others, some gateways, FastAPI
        if document.get(key):
            return _words(document[key], raw)
    return one_line(raw)


def one_line(text: str) -> str:
    """Text with every run of whitespace made one space."""
    return " ".join(text.split())


def cut(text: str, limit: int = LONGEST_MESSAGE) -> str:
    """Text of at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def sendable(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates, which some rollouts hold, become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def total(first: Usage, second: Usage) -> Usage:
    """Both together; what one of them does not say is left out of the sum."""
    return Usage(
        _sum(first.input_tokens, second.input_tokens),
        _sum(first.output_tokens, second.output_tokens),
        _sum(first.cost, second.cost),
    )


def _sum(first: _Number | None, second: _Number | None) -> _Number | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        _whole(usage.get("prompt_tokens")),
        _whole(usage.get("completion_tokens")),
        _amount(usage.get("cost")),
    )


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # parts: text beside images or thoughts
        parts = (_mapping(part) for part in content)
        return "".join(_string(p.get("text")) or "" for p in parts if p.get("type") == "text")
    return ""


def _words(told: Any, raw: str) -> str:
    inner = told.get("message") if isinstance(told, dict) else told
    if isinstance(inner, str):
        return one_line(inner)
    return one_line(raw or msgspec.json.encode(told).decode())


def _first(choices: Any) -> Mapping[str, Any]:
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    return value if right else None
