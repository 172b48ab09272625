"""What a field means: rewards that are measurements, masks, labels, and the text of a prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from advlib.adapters._json import Record, fields, value
from advlib.adapters._report import FormatError
from advlib.adapters.schema import INFINITE, MISSING, NAN, NOT_A_NUMBER, NULL

_ABSENT = object()


class Place(NamedTuple):
    """Where a record stands, for messages, and the reader's option for rewards that are objects."""

    path: str
    line: int
    reward_key: str | None = None

    def error(self, text: str) -> FormatError:
        """An error that names the file and the line."""
        return FormatError(f"{self.path}:{self.line}: {text}")


class Reward(NamedTuple):
    """A reward as a number, or None with the reason why it is no measurement."""

    number: float | None
    reason: str | None


def number(item: Any) -> float | None:
    """A finite number, or None. Booleans count as 0 and 1, strings are never parsed."""
    return measure(item).number


def measure(item: Any) -> Reward:
    """Tell a number from everything that is none.

    Booleans are the numbers 0 and 1. Strings are never parsed: a file that writes "1.0" has lost
    its types, and what else it lost cannot be known.
    """
    if item is None:
        return Reward(None, NULL)
    if not isinstance(item, bool | int | float):
        return Reward(None, NOT_A_NUMBER)
    try:
        result = float(item)
    except OverflowError:  # an integer beyond float64
        return Reward(None, INFINITE)
    if math.isfinite(result):
        return Reward(result, None)
    return Reward(None, NAN if math.isnan(result) else INFINITE)


def read_reward(record: Record, place: Place) -> tuple[Reward, Record]:
    """The `reward` field, and its named parts where it is an object.

    Raises:
        FormatError: the reward is an object and no `reward_key` says which part counts.
    """
    item = record.get("reward", _ABSENT)
    if item is _ABSENT:
        return Reward(None, MISSING), {}
    item = value(item)
    if not isinstance(item, dict):
        return measure(item), {}
    key = place.reward_key
    if key is None:
        keys = ", ".join(map(repr, item)) or "no keys"
        raise place.error(f"the reward is an object ({keys}): say which one with reward_key=")
    if key not in item:
        return Reward(None, MISSING), item
    return measure(item[key]), item


def components(parts: Record) -> list[tuple[str, float | None]] | None:
    """Named parts of a reward; a part that is no number is null, none at all is null."""
    named = [(name, number(value(part))) for name, part in parts.items()]
    return named or None


def mask_source(record: Record) -> str | None:
    """Which fields mask the row, joined by "+"; None where none does.

    Files mix generations and their places disagree, so any one that says so masks the row. A
    failure's kind or reason alone never does.
    """
    sources = []
    if "mask_sample" in record and _is_true(value(record["mask_sample"])):
        sources.append("mask_sample")
    if "instance_config" in record and _is_true(
        value(fields(record["instance_config"]).get("mask_sample"))
    ):
        sources.append("instance_config.mask_sample")
    if "_ng_failure_class" in record and value(record["_ng_failure_class"]) is not None:
        sources.append("failure_class")
    return "+".join(sources) or None


def _is_true(item: Any) -> bool:
    return isinstance(item, bool | int | float) and item == 1


def text_of(*items: Any) -> str | None:
    """The first that is a string and not empty."""
    return next((item for item in items if isinstance(item, str) and item), None)


def label(item: Any) -> str | None:
    """An id or a label as a string; None for null, booleans, lists and objects."""
    if isinstance(item, str):
        return item or None
    if isinstance(item, float):
        return str(int(item)) if item.is_integer() else str(item)
    return str(item) if isinstance(item, int) and not isinstance(item, bool) else None


def whole(item: Any) -> int | None:
    """An integer that fits 64 bits, or None."""
    if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
        return None
    result = int(item)
    return result if result == item and abs(result) < 2**63 else None


def flag(item: Any) -> bool | None:
    """A boolean, or None."""
    return item if isinstance(item, bool) else None


def messages_text(messages: Any) -> str | None:
    """The text of a prompt: a string, or every message's content, two newlines between.

    Roles are left out, since they say nothing about the task; images have no text.
    """
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return None
    return "\n\n".join(text for message in messages for text in _texts(message) if text)


def _texts(message: Any) -> Iterable[str]:
    if isinstance(message, str):
        yield message
    if not isinstance(message, dict):
        return
    for key in ("content", "text", "output", "arguments"):
        item = message.get(key)
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            yield from (text for part in item for text in _texts(part))
