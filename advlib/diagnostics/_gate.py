"""Checks that must all hold before the expensive part starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np

from advlib.diagnostics._effective_batch import EffectiveBatch


class Check(NamedTuple):
    """One condition on one metric.

    Attributes:
        metric: its name.
        min: smallest value that passes, or None.
        max: largest value that passes, or None.
        measures: what the number is, in words.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    measures: str = ""


class Checked(NamedTuple):
    """What came of a check.

    Attributes:
        check: the condition.
        value: the metric; None where it is missing or no number.
        passed: the value is there and within the bounds.
        reason: why it did not pass; empty where it did.
    """

    check: Check
    value: float | None
    passed: bool
    reason: str


class Gate(NamedTuple):
    """What came of all checks.

    Attributes:
        passed: every check passed.
        checks: one result a check, in their order.
    """

    passed: bool
    checks: tuple[Checked, ...]


GS1_CHECKS = (
    Check(
        "offline_beff_ratio_tfidf_vs_loo_mean",
        min=1.03,
        measures="effective batch of the kernel, relative to the mean of the others; no training",
    ),
    Check(
        "pilot_mean_abs_gs1_minus_batchmean_baseline",
        min=0.01,
        measures="mean distance of the kernel baseline from the mean of the others, pilot steps",
    ),
    Check("self_weight_max", min=0.0, max=0.0, measures="largest weight of a sample on itself"),
    Check("executed_rollouts_per_step", min=32, max=32, measures="rollouts a step in either arm"),
    Check("executed_group_size_gs1", min=1, max=1, measures="rollouts a prompt, kernel arm"),
    Check("executed_group_size_grpo", min=8, max=8, measures="rollouts a prompt, group arm"),
    Check(
        "nonzero_advantage_fraction_gs1",
        min=0.3,
        measures="share of samples whose advantage exceeds 1e-6 in size, pilot steps",
    ),
)
"""The seven checks of the GS1 experiment: is the kernel active, and did the arms run as planned."""


def activation_gate(
    checks: Sequence[Check | Mapping[str, Any]], metrics: Mapping[str, Any]
) -> Gate:
    """Whether every metric lies within its bounds; bounds are inclusive.

    A metric that is missing, NaN or no number fails: what was not measured has not passed.

    Args:
        checks: conditions, as :class:`Check` or as mappings with its fields, such as JSON gives.
        metrics: number by name; others than those checked may be there.

    Returns:
        A :class:`Gate`; false if any check fails.

    Raises:
        TypeError: a bound is no number, a check is neither Check nor mapping.
        ValueError: there is no check; one has no bound, an unknown field or min above max; a metric
            is checked twice.
    """
    wanted = [_check(given, index) for index, given in enumerate(checks)]
    if not wanted:
        raise ValueError("checks must hold at least one; an empty gate would always pass")
    names = [check.metric for check in wanted]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"checks name {sorted(twice)[0]!r} twice")
    results = tuple(_result(check, metrics) for check in wanted)
    return Gate(all(result.passed for result in results), results)


def ratio_check(minimum: float = 1.03, *, on: Literal["point", "lower"] = "point") -> Check:
    """A check of the effective batch, on its estimate or on the lower bound of its interval.

    A few dozen tasks can show a ratio of 1.2 by chance where many show 0.95. The point passes such
    tables, the lower bound does not.

    Args:
        minimum: smallest ratio that passes.
        on: "point" or "lower".

    Returns:
        A check of a metric that :func:`effective_batch_metrics` gives.

    Raises:
        ValueError: ``on`` is another word.
    """
    if on == "point":
        return Check("effective_batch_ratio", min=minimum, measures="effective batch, the estimate")
    if on == "lower":
        return Check(
            "effective_batch_ratio_lower",
            min=minimum,
            measures="effective batch, lower bound of its interval",
        )
    raise ValueError(f'on must be "point" or "lower"; got {on!r}')


def effective_batch_metrics(result: EffectiveBatch) -> dict[str, float]:
    """The numbers of an :class:`EffectiveBatch` as metrics of a gate.

    Args:
        result: of :func:`effective_batch`.

    Returns:
        effective_batch_ratio, effective_batch_ratio_lower, effective_batch_ratio_upper,
        effective_batch_sigma2, effective_batch_mse_loo, effective_batch_mse_kernel,
        effective_batch_ess.
    """
    values = {
        "ratio": result.ratio,
        "ratio_lower": result.interval[0],
        "ratio_upper": result.interval[1],
        "sigma2": result.sigma2,
        "mse_loo": result.mse_loo,
        "mse_kernel": result.mse_kernel,
        "ess": result.ess,
    }
    return {f"effective_batch_{name}": value for name, value in values.items()}


def _check(given: Check | Mapping[str, Any], index: int) -> Check:
    if isinstance(given, Mapping):
        unknown = set(given) - set(Check._fields)
        if unknown or "metric" not in given:
            what = f"the unknown field {sorted(unknown)[0]!r}" if unknown else "no metric"
            raise ValueError(
                f"checks[{index}] must have the fields {', '.join(Check._fields)}; it has {what}"
            )
        given = Check(**given)
    if not isinstance(given, Check):
        raise TypeError(f"checks[{index}] must be a Check or a mapping; got {type(given).__name__}")
    for name, bound in (("min", given.min), ("max", given.max)):
        if bound is not None and not _is_number(bound):
            raise TypeError(f"checks[{index}] ({given.metric}): {name} must be a number")
    if given.min is None and given.max is None:
        raise ValueError(f"checks[{index}] ({given.metric}) must have min or max; got neither")
    if given.min is not None and given.max is not None and given.min > given.max:
        raise ValueError(
            f"checks[{index}] ({given.metric}): min {given.min:g} is above max {given.max:g}"
        )
    return given


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return isinstance(value, Real) and not isnan(value)


def _result(check: Check, metrics: Mapping[str, Any]) -> Checked:
    if check.metric not in metrics:
        return Checked(check, None, False, "the metric is missing")
    value = metrics[check.metric]
    if not _is_number(value):
        shown = "NaN" if isinstance(value, Real) and isnan(value) else repr(value)
        return Checked(check, None, False, f"a number is needed; got {shown}")
    number = float(value)
    if check.min is not None and number < check.min:
        return Checked(check, number, False, f"{number:g} is below {check.min:g}")
    if check.max is not None and number > check.max:
        return Checked(check, number, False, f"{number:g} is above {check.max:g}")
    return Checked(check, number, True, "")
