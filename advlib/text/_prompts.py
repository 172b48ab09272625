"""The text of a prompt, whatever shape a prompt has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEXT_FIELDS = ("content", "text", "output", "arguments")


def prompt_text(prompt: Any) -> str:
    """The words of a prompt: a string as it is, messages as their texts, two newlines between.

    Roles are left out, since every prompt has them. An image, a sound or a file has no text and
    adds nothing: prompts that differ in nothing else have the same text.

    Args:
        prompt: a string; one message, a mapping with ``content``; or a sequence of messages.
            Content is a string, a sequence of parts, or None.

    Returns:
        The text; empty where there is none.

    Raises:
        TypeError: the prompt is none of these.
    """
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Mapping | Sequence) or isinstance(prompt, bytes):
        raise TypeError(f"a prompt must be a string or chat messages; got {type(prompt).__name__}")
    texts: list[str] = []
    _collect(prompt, texts)
    return "\n\n".join(texts)


def _collect(item: Any, texts: list[str]) -> None:
    if isinstance(item, str):
        if item:
            texts.append(item)
    elif isinstance(item, Mapping):
        for field in TEXT_FIELDS:
            _collect(item.get(field), texts)
    elif isinstance(item, Sequence) and not isinstance(item, bytes):
        for part in item:
            _collect(part, texts)


def prompt_texts(prompts: Sequence[Any]) -> list[str]:
    """The text of each prompt.

    Args:
        prompts: one prompt a row.

    Returns:
        One string a row.

    Raises:
        TypeError: ``prompts`` is a single string, or a row is no prompt; the message names it.
    """
    if isinstance(prompts, str | bytes | Mapping):
        raise TypeError("prompts must be one prompt a row; got a single prompt")
    texts = []
    for row, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            texts.append(prompt)
            continue
        try:
            texts.append(prompt_text(prompt))
        except TypeError as error:
            raise TypeError(f"prompts, row {row}: {error}") from None
    return texts
