"""Before training: which baseline is worth using on these tasks. After it: was a comparison won.

Everything here runs on the host, in float64, on arrays that fit its memory.
"""

from __future__ import annotations

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
from advlib.diagnostics._power import Power, decision_power
from advlib.diagnostics._preflight import (
    TOLERANCES,
    Comparison,
    Preflight,
    Tolerance,
    content_hash,
    correctness_preflight,
)
from advlib.diagnostics._step import StepMetrics, step_metrics

__all__ = [
    "GS1_CHECKS",
    "TOLERANCES",
    "Check",
    "Checked",
    "Comparison",
    "Criterion",
    "EffectiveBatch",
    "Gate",
    "Interval",
    "Intervals",
    "JointDecision",
    "PairedDecision",
    "Power",
    "Preflight",
    "StepMetrics",
    "Tolerance",
    "activation_gate",
    "content_hash",
    "correctness_preflight",
    "decision_power",
    "effective_batch",
    "effective_batch_by_temperature",
    "effective_batch_metrics",
    "effective_batch_ratio",
    "exact_mcnemar",
    "half_width",
    "intervals",
    "joint_decision",
    "paired_decision",
    "ratio_check",
    "required_items",
    "step_metrics",
    "tango_interval",
]
