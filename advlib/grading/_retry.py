"""How long to wait before a request is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random

RETRIED = frozenset({408, 429})
"""Statuses below 500 after which the same request may succeed later."""


def is_passing(status: int) -> bool:
    """Whether a server's refusal may pass by itself."""
    return status in RETRIED or 500 <= status <= 599


def pause(
    failures: int, *, base: float, longest: float, asked: float | None, random: Random
) -> float:
    """Seconds to wait: exponential backoff with full jitter, after what the server asked for.

        min(asked, longest) + U(0, min(longest, base · 2^(failures - 1)))

    The jitter comes on top, so that requests that were refused together do not return together.

    Args:
        failures: failed requests so far, at least 1.
        base: upper end of the first draw, in seconds.
        longest: bound of each of the two terms.
        asked: what Retry-After said, None where it said nothing.
        random: source of the jitter.

    Source: M. Brooker, "Exponential backoff and jitter", AWS Architecture Blog, 2015.
    """
    widest = min(longest, base * 2.0 ** min(failures - 1, 64))
    return min(asked or 0.0, longest) + random.uniform(0.0, widest)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, None where it is absent or cannot be read.

    A date is taken relative to the response's own Date, so that the clocks need not agree.

    Source: RFC 9110, section 10.2.3.
    """
    told = headers.get("retry-after")
    if told is None:
        return None
    try:
        seconds = float(told)
    except ValueError:
        return _until(told, headers.get("date"))
    return seconds if 0.0 <= seconds < float("inf") else None


def _until(told: str, now: str | None) -> float | None:
    until = _moment(told)
    if until is None:
        return None
    since = (_moment(now) if now else None) or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
