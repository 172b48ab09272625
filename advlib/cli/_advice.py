"""One sentence on what to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENOUGH = 64  # tasks below which a ratio says little about others, whatever its interval says
WORTH_A_LOOK = 1.01  # lower bound from which a temperature that was not settled on is mentioned

Estimate = Mapping[str, Any]


def advice(document: Mapping[str, Any]) -> str:
    """What a calibration comes to.

    Temperatures other than the one that was settled on beforehand are not searched for the best:
    what is picked for its ratio here has a ratio that is too high.

    Args:
        document: of a calibration.
    """
    if document["not_estimated"]:
        return f"Nothing can be estimated: {document['not_estimated']}."
    at = document["temperature"]
    rows = [
        (kernel, row)
        for kernel in document["kernels"]
        for row in kernel["estimates"]
        if row["temperature"] == at
    ]
    if document["rewards"]["min"] == document["rewards"]["max"]:
        return "Nothing to choose: every reward is the same, so every baseline gives advantage 0."
    if any(row["ratio"] is None for _, row in rows):
        return "Nothing to choose: the rewards vary too little for a ratio; measure more tasks."
    kernel, best = max(rows, key=lambda pair: _low(pair[1]))
    if best["num_tasks"] < ENOUGH:
        return (
            f"Too few tasks to choose by, so use batch_leave_one_out or measure more: "
            f"{kernel['title']} at T = {at} reads {best['ratio']:.3f} on {best['num_tasks']}, "
            f"and below {ENOUGH} tasks such a number says little about other tasks."
        )
    told = f"{kernel['title']} at T = {at} is worth {_times(best)}"
    plain = f"the mean of the others at B = {document['batch_size']}"
    if _low(best) > 1:
        return f"Use gs1 with {kernel['title']} at T = {at}: it is worth {_times(best)} {plain}."
    elsewhere = _elsewhere(document)
    if best["ratio"] > 1:
        return (
            "No kernel is shown to help here, so use batch_leave_one_out, or measure more tasks: "
            f"{told} {plain}{elsewhere}."
        )
    return f"The kernel does not help here, so use batch_leave_one_out: {told} {plain}{elsewhere}."


def _elsewhere(document: Mapping[str, Any]) -> str:
    """Another temperature that looks better; it was picked here, so it has to show it elsewhere."""
    kernel, best = max(
        ((kernel, row) for kernel in document["kernels"] for row in kernel["estimates"]),
        key=lambda pair: _low(pair[1]),
    )
    if _low(best) < WORTH_A_LOOK:
        return ""
    return (
        f"; {kernel['title']} at T = {best['temperature']} reads {best['ratio']:.3f}, which other "
        "tasks would have to confirm"
    )


def _low(row: Estimate) -> float:
    interval = row["interval"]
    return -1.0 if interval[0] is None else float(interval[0])


def _times(row: Estimate) -> str:
    low, high = row["interval"]
    interval = "" if low is None else f" (95 %: {low:.3f} to {high:.3f})"
    return f"{row['ratio']:.3f} times{interval} the batch of"
