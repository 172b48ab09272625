"""What a field means: rewards that are measurements, masks, labels, and the text of a prompt."""

from __future__ import annotations

import math
from typing import Any

from advlib.adapters._json import UNSET
from advlib.adapters._lines import Line
from advlib.adapters._report import FormatError
from advlib.adapters.schema import INFINITE, MISSING, NAN, NOT_A_NUMBER, NULL

# A reward as a number, or None with the reason why it is no measurement.
Reward = tuple[float | None, str | None]

_isfinite = math.isfinite


def number(item: Any) -> float | None:
    """A finite number, or None. Booleans count as 0 and 1, strings are never parsed."""
    if type(item) is float and _isfinite(item):  # nearly all of them
        return item
    return measure(item)[0]


def measure(item: Any) -> Reward:
    """Tell a number from everything that is none.

    Booleans are the numbers 0 and 1. Strings are never parsed: a file that writes "1.0" has lost
    its types, and what else it lost cannot be known.
    """
    if type(item) is float and _isfinite(item):
        return item, None
    if item is None:
        return None, NULL
    if item is UNSET:
        return None, MISSING
    if not isinstance(item, bool | int | float):
        return None, NOT_A_NUMBER
    try:
        result = float(item)
    except OverflowError:  # an integer beyond float64
        return None, INFINITE
    if _isfinite(result):
        return result, None
    return None, NAN if math.isnan(result) else INFINITE


def read_reward(
    item: Any, reward_key: str | None, path: str, line: Line
) -> tuple[Reward, dict[str, Any]]:
    """The reward in a field, and its named parts where it is an object.

    Raises:
        FormatError: the reward is an object and no `reward_key` says which part counts.
    """
    if not isinstance(item, dict):
        return measure(item), {}
    if reward_key is None:
        keys = ", ".join(map(repr, item)) or "no keys"
        raise FormatError(
            f"{path}:{line.number}: the reward is an object ({keys}): "
            "say which one with reward_key="
        )
    return measure(item.get(reward_key, UNSET)), item


def components(parts: Any) -> list[tuple[str, float | None]] | None:
    """Named parts of a reward: numbers, and null for a part that was never scored.

    What is neither a number nor null is no part of a reward; no parts at all is null.
    """
    if not parts or not isinstance(parts, dict):
        return None
    named = [
        (name, number(part))
        for name, part in parts.items()
        if type(part) is float or part is None or isinstance(part, bool | int | float)
    ]
    return named or None


def mask_source(top: Any, instance_config: Any = None, failure_class: Any = None) -> str | None:
    """Which fields mask the row, joined by "+"; None where none does.

    Files mix generations and their places disagree, so any one that says so masks the row. A
    failure's kind or reason alone never does.
    """
    if not top and not instance_config and (failure_class is None or failure_class is UNSET):
        return None
    sources = []
    if _is_true(top):
        sources.append("mask_sample")
    if isinstance(instance_config, dict) and _is_true(instance_config.get("mask_sample")):
        sources.append("instance_config.mask_sample")
    if failure_class is not None and failure_class is not UNSET:
        sources.append("failure_class")
    return "+".join(sources) if sources else None


def _is_true(item: Any) -> bool:
    return isinstance(item, bool | int | float) and item == 1


def holds(item: Any) -> bool:
    """Whether a field is there, and neither null nor an empty string, list or object."""
    return item is not UNSET and item is not None and item not in ("", [], {})


def get(item: Any, name: str) -> Any:
    """A field of what may be no object; None where there is none."""
    return item.get(name) if isinstance(item, dict) else None


def text_of(*items: Any) -> str | None:
    """The first that is a string and not empty."""
    for item in items:
        if item and isinstance(item, str):
            return item
    return None


def label(item: Any) -> str | None:
    """An id or a label as a string; None for null, booleans, lists and objects."""
    if type(item) is str:
        return item or None
    if type(item) is int:
        return str(item)
    if type(item) is float:
        if not math.isfinite(item):
            return None
        return str(int(item)) if item.is_integer() else str(item)
    return None


def whole(item: Any) -> int | None:
    """An integer that fits 64 bits, or None."""
    if item is None or item is UNSET:
        return None
    if type(item) is int:
        return item if -(2**63) <= item < 2**63 else None
    if type(item) is not float or not _isfinite(item):
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
    texts: list[str] = []
    for message in messages:
        content = message.get("content") if type(message) is dict else None
        if type(content) is str:  # most messages hold nothing else
            if content:
                texts.append(content)
        else:
            _add_texts(message, texts)
    return "\n\n".join(texts)


def _add_texts(message: Any, texts: list[str]) -> None:
    if isinstance(message, str) and message:
        texts.append(message)
    elif isinstance(message, dict):
        for key in ("content", "text", "output", "arguments"):
            item = message.get(key)
            if isinstance(item, str) and item:
                texts.append(item)
            elif isinstance(item, list):
                for part in item:
                    _add_texts(part, texts)
