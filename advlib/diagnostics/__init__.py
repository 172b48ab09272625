"""Before training: which baseline is worth using on these tasks. After it: was a comparison won.

And of any run: what became of its rollouts, and what is the score over those that were measured.

Everything here runs on the host, in float64, on arrays that fit its memory.
"""

from __future__ import annotations

from advlib.diagnostics._aggregate import Aggregate, aggregate
from advlib.diagnostics._clusters import ClusteredMean, clustered_mean
from advlib.diagnostics._coverage import Coverage, MaskEffect, coverage, mask_effect
from advlib.diagnostics._decision import (
    Criterion,
    JointDecision,
    PairedDecision,
    half_width,
    joint_decision,
    paired_decision,
    required_items,
)
from advlib.diagnostics._effective_batch import (
    EffectiveBatch,
    effective_batch,
    effective_batch_by_temperature,
    effective_batch_ratio,
)
from advlib.diagnostics._failure_kinds import (
    FAILURE_KINDS,
    UnknownFailureKind,
    check_failure_kind,
)
from advlib.diagnostics._gate import (
    GS1_CHECKS,
    Check,
    Checked,
    Gate,
    activation_gate,
    effective_batch_metrics,
    ratio_check,
)
from advlib.diagnostics._intervals import (
    Interval,
    Intervals,
    exact_mcnemar,
    intervals,
    tango_interval,
)
from advlib.diagnostics._pass_at_k import PassAtK, pass_at_k
from advlib.diagnostics._policy import FailurePolicy, Ruled, apply_failure_policy
from advlib.diagnostics._power import Power, decision_power
from advlib.diagnostics._preflight import (
    TOLERANCES,
    Comparison,
    Preflight,
    Tolerance,
    content_hash,
    correctness_preflight,
)
from advlib.diagnostics._progress import performance_summary, progress_metrics
from advlib.diagnostics._step import StepMetrics, step_metrics

__all__ = [
    "FAILURE_KINDS",
    "GS1_CHECKS",
    "TOLERANCES",
    "Aggregate",
    "Check",
    "Checked",
    "ClusteredMean",
    "Comparison",
    "Coverage",
    "Criterion",
    "EffectiveBatch",
    "FailurePolicy",
    "Gate",
    "Interval",
    "Intervals",
    "JointDecision",
    "MaskEffect",
    "PairedDecision",
    "PassAtK",
    "Power",
    "Preflight",
    "Ruled",
    "StepMetrics",
    "Tolerance",
    "UnknownFailureKind",
    "activation_gate",
    "aggregate",
    "apply_failure_policy",
    "check_failure_kind",
    "clustered_mean",
    "content_hash",
    "correctness_preflight",
    "coverage",
    "decision_power",
    "effective_batch",
    "effective_batch_by_temperature",
    "effective_batch_metrics",
    "effective_batch_ratio",
    "exact_mcnemar",
    "half_width",
    "intervals",
    "joint_decision",
    "mask_effect",
    "paired_decision",
    "pass_at_k",
    "performance_summary",
    "progress_metrics",
    "ratio_check",
    "required_items",
    "step_metrics",
    "tango_interval",
]
