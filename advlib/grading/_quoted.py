"""Untrusted text inside a message: one line, escaped, short."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 80


def escaped(text: str, limit: int = LONGEST) -> str:
    """Text on one line, with nothing in it that could steer a terminal, of bounded length."""
    head = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: limit + 1]
    )
    return head if len(head) <= limit else head[: limit - 3] + "..."


def quoted(text: str, limit: int = LONGEST) -> str:
    """As :func:`escaped`, between quotation marks."""
    return f"'{escaped(text, limit)}'"


def some(labels: Iterable[str], limit: int = 3) -> str:
    """The first few labels, and how many more there are: ``'c01', 'c02' and 5 more``."""
    every = list(labels)
    more = f" and {len(every) - limit:,} more" if len(every) > limit else ""
    return ", ".join(quoted(label, 20) for label in every[:limit]) + more
