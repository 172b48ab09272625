"""From the table of a reader to the arrays of an estimator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from advlib.adapters import schema
from advlib.cli._errors import Refusal, one_of
from advlib.cli._show import count, plain, some
from advlib.diagnostics import FailurePolicy, apply_failure_policy
from advlib.diagnostics._policy import COUNTED

LIMIT = 1e150  # of a number; sums of squares of larger ones do not fit float64
LABELS = ("failure_kind", "failure_class")  # columns that name what failed, the finer one first


class Samples(NamedTuple):
    """Rollouts, ready to be scored.

    Attributes:
        table: as it was read; row i of every array is its row i.
        rewards: (B,) float64; NaN where there is none, whatever `valid` says of the rest.
        valid: (B,) bool, the rewards that are measurements.
        reasons: one a row: why it is not valid, or that it was counted as zero, or None.
            This is after the policy for failures; the table has the file's word.
        group_ids: (B,) int32.
        groups: the key of each group.
        counted: rows counted as zero, by kind.
        policy: what was asked for where something failed.
        ruled: rows that each kind of it decided.
    """

    table: pa.Table
    rewards: np.ndarray
    valid: np.ndarray
    reasons: list[str | None]
    group_ids: np.ndarray
    groups: tuple[Any, ...]
    counted: dict[str, int]
    policy: FailurePolicy
    ruled: dict[str, int]

    @property
    def num_groups(self) -> int:
        """Distinct group keys, with the groups that hold no valid row."""
        return len(self.groups)

    def group_name(self, group: int) -> str:
        """A group's key as one word."""
        key = self.groups[group]
        return " · ".join(map(str, key)) if isinstance(key, tuple) else str(key)

    def at(self, row: int) -> str:
        """Where a row came from, ``file:line``."""
        source = self.table["source_file"][row].as_py()
        return f"{source}:{self.table['source_line'][row].as_py()}"


def samples(
    table: pa.Table,
    *,
    group_by: Sequence[str] = ("group",),
    reward: str = "reward",
    policy: FailurePolicy | None = None,
) -> Samples:
    """The arrays of a table.

    Args:
        table: with the columns of ``advlib.adapters.schema``.
        group_by: columns whose values together name a group.
        reward: "reward", a named component of it, or a column of numbers.
        policy: what to do with rows that failed; by default they are masked, as the file says.

    Raises:
        Refusal: a column or component is not there, a group key is null, or a reward is so large
            that statistics would overflow.
    """
    rewards, before = _rewards(table, reward)
    group_ids, groups = _groups(table, group_by)
    policy = policy or FailurePolicy()
    ruled = apply_failure_policy(
        rewards,
        before,
        policy,
        labels=_labels(table) if policy != FailurePolicy() else (),
        group_ids=group_ids,
        exempt=(schema.NOT_TRAINABLE,),
    )
    _check_size(table, ruled.rewards, ruled.valid)
    zeros = Counter(r.removeprefix(COUNTED) for r in ruled.reasons if r and r.startswith(COUNTED))
    asked = dict.fromkeys((k for k, action in policy.kinds.items() if action == "zero"), 0)
    return Samples(
        table,
        ruled.rewards,
        ruled.valid,
        ruled.reasons,
        group_ids,
        groups,
        asked | dict(zeros),
        policy,
        ruled.rows,
    )


def component_names(table: pa.Table) -> list[str]:
    """Names of the parts of the reward that any row has."""
    names: dict[str, None] = {}
    for chunk in table["reward_components"].chunks:
        names.update(dict.fromkeys(pc.unique(chunk.keys).to_pylist()))
    return list(names)


def _labels(table: pa.Table) -> list[list[str | None]]:
    return [table[name].to_pylist() for name in LABELS if name in table.column_names]


def _rewards(table: pa.Table, name: str) -> tuple[np.ndarray, list[str | None]]:
    reasons = [
        None if valid else reason or schema.FAILED
        for valid, reason in zip(
            table["valid"].to_pylist(), table["invalid_reason"].to_pylist(), strict=True
        )
    ]
    if "reason" in table.column_names:  # scored before: what was counted as zero stays known
        for row, before in enumerate(table["reason"].to_pylist()):
            if reasons[row] is None and str(before).startswith(COUNTED):
                reasons[row] = before
    parts = component_names(table)
    if name == "reward":
        column = table["reward"]
    elif name in parts:
        column = pc.map_lookup(table["reward_components"], name, "last")
    else:
        numeric = [field.name for field in table.schema if _numeric(field.type)]
        one_of(name, [*parts, *numeric], "the reward")
        column = table[name]
    values = _floats(column)
    # Another number cannot make a row usable that was not; it can only be missing itself. The
    # reward itself is not looked at again, but for a table that somebody else wrote.
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        if reasons[row] is None:
            reasons[row] = _why(column[row].as_py())
    return values, reasons


def _check_size(table: pa.Table, rewards: np.ndarray, valid: np.ndarray) -> None:
    beyond = np.flatnonzero(valid & (np.abs(rewards) > LIMIT))
    if len(beyond):
        row = int(beyond[0])
        source, line = table["source_file"][row].as_py(), table["source_line"][row].as_py()
        raise Refusal(
            f"{source}:{line}: a reward of {rewards[row]:g}; beyond {LIMIT:g} no variance fits "
            "float64"
        )


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    values = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return np.array(values, np.float64)


def _numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _why(value: float | None) -> str:
    if value is None:
        return schema.MISSING
    return schema.NAN if np.isnan(value) else schema.INFINITE


def _groups(table: pa.Table, columns: Sequence[str]) -> tuple[np.ndarray, tuple[Any, ...]]:
    from advlib import encode_groups

    usable = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
    keys = []
    for name in columns:
        one_of(name, usable, "--group-by: the column")
        column = table[name]
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            source, line = table["source_file"][row].as_py(), table["source_line"][row].as_py()
            raise Refusal(
                f"--group-by {name}: null in {count(column.null_count, 'row')} of {len(table):,}, "
                f"first at {plain(str(source))}:{line}; a missing key is not a group"
            )
        keys.append(column.to_pylist())
    if not keys:
        raise Refusal("--group-by: name at least one column, for example group")
    groups = encode_groups(keys[0] if len(keys) == 1 else list(zip(*keys, strict=True)))
    return groups.ids, groups.keys


def known_kinds(data: Samples) -> str:
    """Every failure kind and reason that some row has, for a message."""
    names = [n for n in (*LABELS, "invalid_reason") if n in data.table.column_names]
    kinds = {kind for n in names for kind in pc.unique(data.table[n]).to_pylist()} - {None}
    return some(sorted(kinds), limit=8) or "none"
