"""Experiments that decide: a spec fixed beforehand, gates, arms, one grader, a verdict."""

from __future__ import annotations

from advlib.experiments._policies import Given
from advlib.experiments._record import read_record
from advlib.experiments.gate import OfflineGate, Tried, offline_gate
from advlib.experiments.reading import SpecError, check_spec, demo_spec, parse_spec, read_spec
from advlib.experiments.run import run_experiment
from advlib.experiments.spec import Spec
from advlib.experiments.verdict import Verdict, conclude

__all__ = [
    "Given",
    "OfflineGate",
    "Spec",
    "SpecError",
    "Tried",
    "Verdict",
    "check_spec",
    "conclude",
    "demo_spec",
    "offline_gate",
    "parse_spec",
    "read_record",
    "read_spec",
    "run_experiment",
]
