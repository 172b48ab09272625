"""The activation gate: what it may ask, and whether it passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advlib import diagnostics
from advlib.diagnostics import Check, Checked
from advlib.experiments.spec import Arm, Bound, Kernel, Spec

OFFLINE = "offline_beff_ratio_"
SHIFT = "pilot_mean_abs_gs1_minus_batchmean_baseline"
SELF_WEIGHT = "self_weight_max"
GROUP_SIZE, NONZERO = "executed_group_size_", "nonzero_advantage_fraction_"  # and an arm's name


class Tried(NamedTuple):
    """A kernel and what the calibration says about it.

    Attributes:
        kernel: its name.
        metrics: offline metrics by name, see :func:`offline_names`.
    """

    kernel: str
    metrics: Mapping[str, float]


class OfflineGate(NamedTuple):
    """What came of the checks before any training.

    Attributes:
        passed: a kernel passed all of them.
        kernel: the one to train with; None where none passed.
        revised: that one is the fallback.
        tried: for each kernel that was looked at, its name and its checks.
    """

    passed: bool
    kernel: str | None
    revised: bool
    tried: tuple[tuple[str, tuple[Checked, ...]], ...]


def offline_gate(checks: Sequence[Check], tried: Sequence[Tried]) -> OfflineGate:
    """Judge the kernel by its calibration, and at most one fallback by the same checks.

    Args:
        checks: those of the offline metrics, worded for the first kernel; for the other one its
            name takes the place of the first one's.
        tried: the kernel, and the fallback where one was approved beforehand.

    Returns:
        An :class:`OfflineGate`. The fallback is looked at only if the first kernel failed, and the
        bounds stay what they are.

    Raises:
        ValueError: no kernel, or more than one fallback.
    """
    if not 1 <= len(tried) <= 2:
        raise ValueError(f"tried must be a kernel and at most one fallback; got {len(tried)}")
    first, results = tried[0].kernel, []
    for kernel, metrics in tried:
        worded = [_for_kernel(check, first, kernel) for check in checks]
        if not worded:
            return OfflineGate(True, first, False, ((first, ()),))
        judged = diagnostics.activation_gate(worded, metrics)
        results.append((kernel, judged.checks))
        if judged.passed:
            return OfflineGate(True, kernel, kernel != first, tuple(results))
    return OfflineGate(False, None, False, tuple(results))


def offline_names(kernel: str) -> tuple[str, str, str]:
    """Names of a kernel's effective batch, its lower and its upper bound."""
    name = f"{OFFLINE}{kernel}_vs_loo_mean"
    return name, f"{name}_lower", f"{name}_upper"


def is_offline(metric: str) -> bool:
    """Whether a metric is known before the pilot."""
    return metric.startswith(OFFLINE)


def check_of(bound: Bound) -> Check:
    """A bound of the spec as a check."""
    return Check(bound.metric, bound.min, bound.max, bound.measures)


def kernel_arm(spec: Spec) -> Arm | None:
    """The arm whose kernel the gate is about; None without any."""
    return next((arm for arm in spec.arms if arm.advantage == "gs1"), None)


def planned_metrics(spec: Spec) -> dict[str, float]:
    """What the design says that the arms will be executed with, by metric."""
    sizes = {arm.name: float(arm.group_size) for arm in spec.arms}
    return {
        "executed_rollouts_per_step": float(spec.batch_size),
        **by_arm(spec, GROUP_SIZE, sizes),
    }


def by_arm(spec: Spec, prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """A metric of each arm, under the arm's role too: ``gs1``, the kernel; ``grpo``, the groups.

    The second is the only arm with groups. A role that is the name of an arm stays that arm's.
    """
    grouped = [arm for arm in spec.arms if arm.group_size > 1]
    roles = {"gs1": kernel_arm(spec), "grpo": grouped[0] if len(grouped) == 1 else None}
    held = {role: values[arm.name] for role, arm in roles.items() if arm is not None}
    return {f"{prefix}{name}": value for name, value in {**held, **values}.items()}


def known_metrics(spec: Spec) -> set[str]:
    """Every metric that a run of this spec computes before the full arms."""
    arm = kernel_arm(spec)
    names = {*planned_metrics(spec), *by_arm(spec, NONZERO, {a.name: 0.0 for a in spec.arms})}
    if arm is not None:
        names |= {*offline_names(arm.kernel), SHIFT, SELF_WEIGHT}
    return names


def kernels_to_try(spec: Spec) -> tuple[Kernel, ...]:
    """The kernel of the arm, then the fallback."""
    arm, fallback = kernel_arm(spec), spec.activation_gate.fallback_kernel
    if arm is None:
        return ()
    return (arm.kernel,) if fallback is None else (arm.kernel, fallback)


def _for_kernel(check: Check, first: str, kernel: str) -> Check:
    stem = offline_names(first)[0]
    if not check.metric.startswith(stem):
        return check
    return check._replace(metric=offline_names(kernel)[0] + check.metric.removeprefix(stem))
