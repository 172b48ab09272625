"""Why rollouts were not measured, and why others have the reward 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from advlib.adapters import schema
from advlib.cli._account import Absent, Account
from advlib.cli._samples import LABELS, Samples
from advlib.diagnostics import FAILURE_KINDS
from advlib.diagnostics._failure_kinds import standing
from advlib.diagnostics._policy import COUNTED

PLACES = 3  # shown of each cause
TEXTS = 20  # free texts that are listed one by one
LONGEST = 160  # characters of a free text

# What the reasons of rows without a failure kind mean.
_WORDS = {
    schema.MASKED: "the file says that the reward is no measurement",
    schema.FAILED: "the rollout, its environment or its judge failed",
    schema.MISSING: "no reward in the row",
    schema.NULL: "the reward is null",
    schema.NAN: "the reward is not a number",
    schema.INFINITE: "the reward is infinite",
    schema.NOT_A_NUMBER: "the reward is text, a list or an object",
    schema.MASKED_BY_POLICY: "masked because --on-failure says so",
    schema.DROPPED_GROUP: "a failure in its group made the whole group leave",
}
_ABSENT = {
    "omitted": "left out by the run, which ended",
    "unknown": "nothing says why: the run may not be over, or lost it",
}


class Columns:
    """The columns that say what failed, once as lists."""

    def __init__(self, data: Samples) -> None:
        table = data.table
        self.labels = [table[name].to_pylist() for name in LABELS if name in table.column_names]
        self.texts = table["failure_reason"].to_pylist()
        self.words = table["invalid_reason"].to_pylist()
        self.sources = table["source_file"].to_pylist()
        self.lines = table["source_line"].to_pylist()

    def kind(self, row: int) -> str | None:
        """The finest name of what failed in a row."""
        return next((labels[row] for labels in self.labels if labels[row]), None)

    def place(self, row: int) -> str:
        """Where a row came from."""
        return f"{self.sources[row]}:{self.lines[row]}"


def failures(
    data: Samples,
    account: Account,
    columns: Columns,
    rows: np.ndarray,
    absent: Sequence[Absent],
    expected: int,
) -> list[dict[str, Any]]:
    """What was not measured: kind and reason, how often, and the first places.

    Args:
        data: the rollouts.
        account: what became of them.
        columns: of the same table.
        rows: (B,) bool, rows to look at.
        absent: rollouts without a row to count with them.
        expected: rollouts that the shares are of.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}

    def entry(kind: str, became: str, reason: str) -> dict[str, Any]:
        return found.setdefault(
            (kind, became, reason),
            {
                "kind": kind,
                "became": became,
                "reason": reason,
                "standing": None,
                "meaning": None,
                "count": 0,
                "share": 0.0,
                "where": [],
                "text": None,
            },
        )

    lost = np.flatnonzero(rows & np.isin(account.became, ("masked", "failed", "omitted")))
    for row in lost.tolist():
        name, reason = columns.kind(row), str(data.reasons[row])
        told = entry(name or reason, account.became[row], reason)
        if name is None:
            told["meaning"] = _WORDS.get(reason)
        else:
            told["standing"], told["meaning"] = standing(name), FAILURE_KINDS.get(name)
        told["count"] += 1
        if len(told["where"]) < PLACES:
            told["where"].append(columns.place(row))
        told["text"] = told["text"] or _short(columns.texts[row])
    for one in absent:
        told = entry("no row", one.state, "absent")
        told["meaning"] = _ABSENT[one.state]
        told["count"] += one.rollouts
        told["where"] = [*told["where"], *one.where][:PLACES]
    for told in found.values():
        told["share"] = told["count"] / expected
    return sorted(found.values(), key=lambda told: -told["count"])


def zeros(data: Samples, columns: Columns, rows: np.ndarray) -> list[dict[str, Any]]:
    """Measured rewards of 0 by cause: counted, of a named kind, with a reason in words, or true.

    A kind beside a valid 0 may say that the judge failed and not the policy; whether such a row is
    a measurement is for the file to say, or for the policy for failures.
    """
    tally: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero(rows & data.valid & (data.rewards == 0)).tolist():
        cause = _cause(data.reasons[row], columns.kind(row), columns.texts[row])
        tally[cause] = tally.get(cause, 0) + 1
    ordered = sorted(tally.items(), key=lambda item: -item[1])
    texts = [item for item in ordered if item[0][0] == "failure_reason"]
    shown = [item for item in ordered if item[0][0] != "failure_reason"] + texts[:TEXTS]
    rest = texts[TEXTS:]
    result = [
        {"cause": cause, "name": name, "count": many}
        for (cause, name), many in sorted(shown, key=lambda item: -item[1])
    ]
    if rest:
        many = sum(times for _, times in rest)
        name = f"{len(rest):,} other texts"
        result.append({"cause": "failure_reason", "name": name, "count": many})
    return result


def _cause(reason: str | None, kind: str | None, text: str | None) -> tuple[str, str]:
    if reason is not None and reason.startswith(COUNTED):
        return "counted_as_zero", reason.removeprefix(COUNTED)
    if kind is not None:
        return "failure_kind", kind
    # Some environments write a code of their own there, "none" for no failure.
    if text and text.strip().lower() not in ("", "none", "null"):
        return "failure_reason", _short(text) or ""
    return "true_zero", "true zero"


def _short(text: str | None) -> str | None:
    if not text:
        return None
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def places(told: dict[str, Any], short: dict[str, str]) -> str:
    """The places of a cause: short names of files, each with its lines."""
    lines: dict[str, list[str]] = {}
    for place in told["where"]:
        path, _, line = place.rpartition(":")
        if line.isdigit():
            lines.setdefault(short.get(path, path), []).append(line)
        else:  # a whole file
            lines.setdefault(short.get(place, place), [])
    more = ", ..." if told["count"] > len(told["where"]) and any(lines.values()) else ""
    named = (path + (":" + ", ".join(at) if at else "") for path, at in lines.items())
    return ", ".join(named) + more


def paths(section: dict[str, Any]) -> Iterator[str]:
    """The files that the places of a section are in."""
    for told in section["not_measured"]:
        for place in told["where"]:
            path, _, line = place.rpartition(":")
            yield path if line.isdigit() else place
