"""What the user wants done with rollouts that failed, from the words of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from advlib.adapters import schema
from advlib.cli._errors import Refusal, one_of
from advlib.diagnostics import FailurePolicy
from advlib.diagnostics._policy import ACTIONS, Action

EVERY = "*"  # stands for the kinds that are not named


def policy(on_failure: Sequence[str] = (), count_as_zero: Sequence[str] = ()) -> FailurePolicy:
    """The policy of ``--on-failure KIND=ACTION`` and ``--count-as-zero KIND``.

    Raises:
        Refusal: no kind or action, an unknown action, two actions for one kind, or a kind of
            rollouts that did not fail.
    """
    found: dict[str, tuple[Action, str]] = {}
    for word in on_failure:
        kind, equals, action = word.rpartition("=")
        kind = kind.strip()
        if not equals or not kind:
            raise Refusal(
                f"--on-failure {word}: wanted KIND=ACTION, such as judge_failed=zero; "
                f"the actions are {', '.join(ACTIONS)}"
            )
        known = one_of(action.strip(), ACTIONS, f"--on-failure {kind}: the action")
        _add(found, kind, next(a for a in ACTIONS if a == known), f"--on-failure {kind}={known}")
    for word in count_as_zero:
        if word == EVERY:
            raise Refusal("--count-as-zero names one kind; for all of them: --on-failure '*=zero'")
        _add(found, word, "zero", f"--count-as-zero {word}")
    default = found.pop(EVERY, ("mask", ""))[0]
    return FailurePolicy({kind: action for kind, (action, _) in found.items()}, default)


def settings(policy: FailurePolicy) -> dict[str, str]:
    """A policy as every output records it."""
    return {**policy.kinds, EVERY: policy.default}


def _add(found: dict[str, tuple[Action, str]], kind: str, action: Action, said: str) -> None:
    if kind == schema.NOT_TRAINABLE and action != "mask":
        what = "count" if action == "zero" else "leave for"
        raise Refusal(
            f"{said}: such a rollout was measured, but it is not a sample of the policy, so there "
            f"is nothing to {what}"
        )
    before = found.setdefault(kind, (action, said))
    if before[0] != action:
        raise Refusal(f"{before[1]} and {said} contradict each other")
