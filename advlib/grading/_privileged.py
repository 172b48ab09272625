"""Keeping what only the grader may see out of everything that others read."""

from __future__ import annotations

from collections.abc import Iterable

_WINDOW = 16  # characters in a row that two texts do not share by chance


def censored(text: str, secrets: Iterable[str]) -> str:
    """Text with a star for each character that it repeats of privileged texts.

    Stretches of 16 characters and more are found; what is shorter is no secret's own.
    """
    every = [secret for secret in secrets if len(secret) >= _WINDOW]
    if not every:
        return text
    hidden = bytearray(len(text))
    for at in range(len(text) - _WINDOW + 1):
        window = text[at : at + _WINDOW]
        if any(window in secret for secret in every):
            hidden[at : at + _WINDOW] = b"\1" * _WINDOW
    return "".join("*" if hide else char for char, hide in zip(text, hidden, strict=True))
