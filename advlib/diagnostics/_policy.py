"""What becomes of a rollout that failed: one rule by failure kind, applied in one place.

The file says which rewards are measurements. The user may say otherwise, kind by kind, and then
the reason of every row that it concerns says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from advlib import _checks

Action = Literal["mask", "zero", "drop_group"]
ACTIONS: tuple[Action, ...] = get_args(Action)

COUNTED = "counted as zero: "  # before the kind, in the reason of a row that counts
BY_POLICY = "masked_by_policy"  # a measurement by the file's word, masked because it was asked for
DROPPED = "dropped_group"  # its whole group left


class FailurePolicy(NamedTuple):
    """What to do with rows that failed, by kind.

    Attributes:
        kinds: a failure kind or an invalid reason to "mask", "zero" or "drop_group". It holds for
            every row that has it, for one that the file did not mask as well.
        default: for masked rows of any other kind. It never touches an unmasked row.
    """

    kinds: Mapping[str, Action] = {}
    default: Action = "mask"


class Ruled(NamedTuple):
    """Rows after a policy.

    Attributes:
        rewards: (B,) float64, 0 where a row is counted as zero.
        valid: (B,) bool, the rewards that count.
        reasons: one a row: None, why it does not count, or that it was counted as zero.
        rows: number of rows that each named kind decided, "*" for the default; 0 for a kind that no
            row has.
    """

    rewards: np.ndarray
    valid: np.ndarray
    reasons: list[str | None]
    rows: dict[str, int]


def apply_failure_policy(
    rewards: Any,
    reasons: Sequence[str | None],
    policy: FailurePolicy,
    *,
    labels: Iterable[Sequence[str | None]] = (),
    group_ids: Any = None,
    exempt: Iterable[str] = (),
) -> Ruled:
    """Rewards and reasons as a policy has them.

        mask         the row does not count
        zero         it counts, with the reward 0
        drop_group   no row of its group counts: each has the reason ``dropped_group``

    Args:
        rewards: (B,) rewards; what stands in a masked row is not looked at.
        reasons: (B,) why a row is not a measurement; None where it is one. A reason that starts
            with ``counted as zero: `` is of a row that counts.
        policy: what to do.
        labels: (B,) each: names of what failed, the one that decides first. The reason itself
            decides after them all.
        group_ids: (B,) integers; needed to drop a group.
        exempt: reasons of rows that stay as they are whatever the policy, since nothing failed.

    Returns:
        :class:`Ruled`.

    Raises:
        ValueError: lengths differ, an action is unknown, or a group is to be dropped without
            ``group_ids``.
    """
    values = np.array(_checks.as_numpy("rewards", rewards), np.float64)
    after = list(reasons)
    columns = [list(column) for column in labels]
    _check(values, after, columns, policy)
    ruled = dict.fromkeys(policy.kinds, 0)
    if policy.default != "mask":
        ruled["*"] = 0
    if not ruled:
        return Ruled(values, _counts(after), after, ruled)
    untouched = frozenset(exempt)
    leaving: list[int] = []
    for row, reason in enumerate(reasons):
        if reason in untouched:
            continue
        kind, action = _decide(reason, (column[row] for column in columns), policy)
        if kind is None:
            continue
        ruled[kind] += 1
        if action == "drop_group":
            leaving.append(row)
        elif action == "zero":
            values[row] = 0.0
            after[row] = COUNTED + (_name(row, columns, reason) if kind == "*" else kind)
        elif reason is None or reason.startswith(COUNTED):
            after[row] = BY_POLICY
    if leaving:
        if group_ids is None:
            raise ValueError("a group cannot be dropped without group_ids")
        ids = _checks.as_numpy("group_ids", group_ids)
        if ids.shape != values.shape:
            raise ValueError(
                f"rewards and group_ids must have the same length; got shapes {values.shape} and "
                f"{ids.shape}"
            )
        for row in np.flatnonzero(np.isin(ids, ids[leaving])).tolist():
            if reasons[row] not in untouched:
                after[row] = DROPPED
    return Ruled(values, _counts(after), after, ruled)


def _decide(
    reason: str | None, labels: Iterator[str | None], policy: FailurePolicy
) -> tuple[str | None, Action]:
    for name in (*labels, reason):
        if name is not None and name in policy.kinds:
            return name, policy.kinds[name]
    masked = reason is not None and not reason.startswith(COUNTED)
    return ("*" if masked and policy.default != "mask" else None), policy.default


def _name(row: int, columns: list[list[str | None]], reason: str | None) -> str:
    return next((column[row] for column in columns if column[row]), None) or str(reason)


def _counts(reasons: list[str | None]) -> np.ndarray:
    return np.array([r is None or r.startswith(COUNTED) for r in reasons], bool)


def _check(
    values: np.ndarray,
    reasons: list[str | None],
    columns: list[list[str | None]],
    policy: FailurePolicy,
) -> None:
    lengths = [len(reasons), *map(len, columns)]
    if values.ndim != 1 or any(length != len(values) for length in lengths):
        raise ValueError(
            "rewards, reasons and labels must have one entry a row; got shape "
            f"{values.shape} and lengths {', '.join(map(str, lengths))}"
        )
    for kind, action in (*policy.kinds.items(), ("*", policy.default)):
        if action not in ACTIONS:
            raise ValueError(f"{kind}={action!r}: an action is one of {', '.join(ACTIONS)}")
