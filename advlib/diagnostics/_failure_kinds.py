"""Names for what went wrong, and a check that never rejects one.

A name says what failed and nothing about what to do: whether such a rollout is masked, counted or
tried again is the business of whoever reads it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

FAILURE_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "transport_unreachable": "another process could not be reached",
        "transport_peer_drop": "the other side closed or dropped the connection",
        "transport_timeout": "the transport timed out",
        "transport_local_resource": "sockets, file descriptors or the like ran out on this side",
        "agent_run_error": "the agent answered, and its run broke",
        "agent_request_failed": "the request never reached the agent, so no rollout ran",
        "agent_timeout": "the agent or its harness took too long",
        "agent_command_not_allowed": "the agent gave a command that is forbidden",
        "judge_failed": "the call to the judge failed",
        "judge_unparseable": "the judge answered, and no verdict could be read from it",
        "verifier_error": "the verifier itself failed",
        "provider_unavailable": "no sandbox, browser or container could be had",
        "provider_quota_exhausted": "the provider's quota was used up",
        "provider_oom_killed": "the container was killed for its memory",
        "session_lost": "the environment's session is gone",
        "session_expired": "the environment's session outlived its time",
        "session_release_failed": "the environment's session could not be released",
        "cancelled": "the rollout was cancelled, or there was no budget left to start it",
        "kill_shaped": "the process was ended from outside, not for its memory",
        "shutdown": "the process was shutting down",
        "persistence_failed": "the row could not be saved",
        "cohort_incomplete": "rollouts are missing that are scored together with this one",
    }
)
"""The registered failure kinds of NeMo Gym, ``<domain>_<condition>``, each with its meaning."""

# Labels of `_ng_failure_class` that files of older versions hold and the registry does not.
LEGACY = frozenset(
    {
        "environment_server_failed",
        "eval_missing",
        "infrastructure_error",
        "judge_invalid",
        "reference_missing",
        "skipped",
        "timeout_exceeded",
        "transient",
        "transport_ineligible",
    }
)

Standing = Literal["registered", "namespaced", "legacy", "unknown"]

_NAMESPACED = re.compile("[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")
_warned: set[str] = set()


class UnknownFailureKind(UserWarning):
    """A failure kind is neither registered nor of the form ``server:kind``."""


def check_failure_kind(name: str | None) -> str | None:
    """The name as it came; warns once a process about each name that nobody registered.

    Registered names pass, and so does ``server:kind``, with exactly one colon and both halves
    ``[a-z][a-z0-9_]*``. Nothing is rejected and nothing is rewritten: a wrong label that can be
    seen is better than a failure that cannot.

    Args:
        name: a failure kind, or None for no failure.

    Returns:
        ``name``, unchanged.

    Raises:
        TypeError: not a string.

    Warns:
        UnknownFailureKind: the first time that an unregistered name is seen.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"a failure kind must be a string or None; got {type(name).__name__}")
    if standing(name) in ("registered", "namespaced") or name in _warned:
        return name
    _warned.add(name)
    warnings.warn(
        f"failure kind {name!r} is not registered, and not of the form 'server:kind'",
        UnknownFailureKind,
        stacklevel=2,
    )
    return name


def standing(name: str) -> Standing:
    """What is known of a name: "legacy" for labels that only older files hold."""
    if name in FAILURE_KINDS:
        return "registered"
    if _NAMESPACED.fullmatch(name):
        return "namespaced"
    return "legacy" if name in LEGACY else "unknown"
