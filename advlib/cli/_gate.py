"""``--gate``: checks that were written down before the numbers were seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from advlib.cli._errors import Refusal
from advlib.cli._show import some

ON = ("point", "lower")


class Spec(NamedTuple):
    """Checks, and numbers that were measured elsewhere."""

    path: str
    checks: list[Mapping[str, Any]]
    metrics: dict[str, float]


def read(path: str, metrics: str | None = None) -> Spec:
    """A list of checks, or an object that holds one as ``checks`` or ``activation_gate``.

    Raises:
        Refusal: the file is no such JSON.
        OSError: it cannot be read.
    """
    from advlib import diagnostics

    content = _json("--gate", path)
    for name in ("activation_gate", "checks"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    if not isinstance(content, list):
        raise Refusal(f'--gate {path}: wanted {{"checks": [{{"metric": NAME, "min": X}}, ...]}}')
    try:
        diagnostics.activation_gate(content, {})
    except (TypeError, ValueError) as error:
        raise Refusal(f"--gate {path}: {error}") from error
    return Spec(path, content, _numbers(metrics) if metrics else {})


def judge(spec: Spec, document: Mapping[str, Any], *, on: str) -> dict[str, Any]:
    """The checks beside what was found; a metric that is missing fails.

    Args:
        spec: from :func:`read`.
        document: of a calibration.
        on: "point" for the ratios themselves, "lower" for the lower bounds of their intervals.
    """
    from advlib import diagnostics

    metrics = {**spec.metrics, **measured(document, on=on)}
    outcome = diagnostics.activation_gate(spec.checks, metrics)
    rows = [
        {
            "metric": row.check.metric,
            "min": row.check.min,
            "max": row.check.max,
            "value": row.value,
            "passed": row.passed,
            "reason": row.reason,
        }
        for row in outcome.checks
    ]
    return {
        "spec": spec.path,
        "on": on,
        "passed": outcome.passed,
        "checks": rows,
        "metrics": metrics,
    }


def measured(document: Mapping[str, Any], *, on: str) -> dict[str, float]:
    """Every number of a calibration that a check can name.

    ``ratio_tfidf`` is the ratio at the usual temperature, ``ratio_tfidf@0.5`` that at 0.5, and
    likewise for ``mse`` and ``ess``. ``offline_beff_ratio_tfidf_vs_loo_mean`` is another name of
    the first, from :data:`advlib.diagnostics.GS1_CHECKS`.
    """
    tasks = document["tasks"]
    found: dict[str, float | None] = {
        "tasks": tasks["count"],
        "tasks_with_two_or_more": tasks["with_two_or_more"],
        "rollouts": document["coverage"]["valid"],
    }
    for kernel in document["kernels"]:
        for row in kernel["estimates"]:
            ratio = row["ratio"] if on == "point" else row["interval"][0]
            values = {"ratio": ratio, "mse": row["mse_kernel"], "ess": row["ess"]}
            found |= {f"{k}_{kernel['name']}@{row['temperature']}": v for k, v in values.items()}
            if row["temperature"] == document["temperature"]:
                found |= {f"{k}_{kernel['name']}": v for k, v in values.items()}
                found[f"offline_beff_ratio_{kernel['name']}_vs_loo_mean"] = ratio
                found |= {"sigma2": row["sigma2"], "mse_loo": row["mse_loo"]}
    return {name: value for name, value in found.items() if value is not None}


def _numbers(path: str) -> dict[str, float]:
    content = _json("--gate-metrics", path)
    if not isinstance(content, dict):
        raise Refusal(f"--gate-metrics {path}: wanted an object of numbers by name")
    odd = [name for name, value in content.items() if not (value is None or _is_number(value))]
    if odd:
        raise Refusal(f"--gate-metrics {path}: no numbers: {some(odd)}")
    return {name: float(value) for name, value in content.items() if value is not None}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _json(flag: str, path: str) -> Any:
    with open(path, "rb") as file:
        try:
            return msgspec.json.decode(file.read())
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Refusal(f"{flag} {path}: not JSON: {error}") from error
