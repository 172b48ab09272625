"""What a grader is told about its server, checked before the first request."""

from __future__ import annotations

import os
from math import isfinite
from typing import Any

API_KEY = "ADVLIB_GRADER_API_KEY"
"""The environment variable that :class:`HttpGrader` takes its key from."""


def imported_httpx() -> Any:
    """The package httpx, which comes with an extra."""
    try:
        import httpx
    except ImportError:
        raise ImportError("HttpGrader needs httpx: pip install 'advlib[grade]'") from None
    return httpx


def endpoint(base_url: str) -> str:
    """The address that requests go to."""
    import httpx

    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        raise ValueError("base_url must be a URL such as https://host/v1") from None
    # No message shows the address: keys are put into every part of it.
    if url.userinfo:
        raise ValueError(f"base_url must hold no credentials; set {API_KEY} instead")
    if url.query or url.fragment:
        raise ValueError("base_url must hold no query and no fragment")
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("base_url must begin with http:// or https:// and a host")
    return f"{str(url).rstrip('/')}/chat/completions"


def checked_key(api_key: str | None) -> str:
    """The key that was given or that the environment holds; empty where there is none."""
    key = (os.environ.get(API_KEY, "") if api_key is None else api_key).strip()
    # What no header can carry would come back, key and all, in the message of a lower layer.
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("the API key must be printable ASCII without spaces")
    return key


def within(name: str, value: float, *, least: float | None = None) -> None:
    """Refuses a number that is not finite, or less than ``least``, or not above 0 without one."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not right or (value <= 0 if least is None else value < least):
        wanted = "above 0" if least is None else f"at least {least:g}"
        raise ValueError(f"{name} must be a finite number, {wanted}; got {value!r}")


def whole(name: str, value: int, *, least: int) -> None:
    """Refuses what is no integer, or less than ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer, at least {least}; got {value!r}")
