"""The record: everything that is said of a run, whether it has ended or is under way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from advlib.experiments import gate
from advlib.experiments._evaluation import evaluated, evaluator
from advlib.experiments._folder import Folder, plain
from advlib.experiments._power import expected_power, needed_items
from advlib.experiments.reading import SpecError, parse_spec, spec_hash
from advlib.experiments.spec import Arm, Spec
from advlib.experiments.verdict import conclude

FORMAT = "advlib.experiment/1"


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The record of a run.

    Args:
        folder: of the run.

    Returns:
        What :func:`run_experiment` returned; of a run that is under way or was interrupted, what
        its stages say so far, with ``stopped_at`` "unfinished".

    Raises:
        OSError: there is neither a record nor a spec.
        SpecError: the file is no record of an experiment, or a stage is damaged.
    """
    path = Path(folder) / "record.json"
    spec = path.with_name("spec.json")
    if spec.exists() and not path.exists():
        wanted = parse_spec(spec.read_bytes(), where=str(spec))
        return dict(plain(record_of(wanted, _stages(Folder(folder), wanted))))
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    found = record.get("format") if isinstance(record, dict) else type(record).__name__
    if found != FORMAT:
        raise SpecError(f"{path}: must be a record of format {FORMAT!r}; got {found!r}")
    return dict(record)


def record_of(spec: Spec, stages: dict[str, Any]) -> dict[str, Any]:
    """Everything that is said of a run, in one document without a clock.

    Args:
        spec: of the run.
        stages: see :func:`conclude`; those of a run under way may lack arms and evaluations.
    """
    verdict = conclude(stages)
    begun, calibration, pilot = (stages.get(name) for name in ("start", "calibration", "pilot"))
    offline = None if calibration is None else calibration["gate"]
    kernel = None if calibration is None else trained_kernel(spec, calibration)
    return {
        "format": FORMAT,
        "title": spec.title,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "stopped_at": verdict.stopped_at,
        "spec": msgspec.to_builtins(spec),
        "spec_sha256": spec_hash(spec),
        "revised": _revision(spec, offline),
        "start": begun,
        "preflight": stages.get("preflight"),
        "forced": stages.get("forced"),
        "calibration": calibration,
        "gate": {
            "applicable": spec.activation_gate.applicable,
            "passed": _gate_passed(spec, offline, pilot),
            "kernel": kernel,
            "offline": offline,
            "pilot": None if pilot is None else pilot["gate"],
        },
        "pilot": pilot,
        "power": expectations(spec),
        "arms": [_arm(arm, stages) for arm in spec.arms],
        "evaluation": None
        if begun is None or "evaluation" not in stages
        else {
            "evaluator": evaluator(spec, begun["revisions"]["code_sha256"]),
            "policies": stages["evaluation"],
        },
        "decision": stages.get("decision"),
    }


def expectations(spec: Spec) -> dict[str, dict[str, Any]]:
    """The chances of each verdict before the data, by criterion."""
    return {
        criterion.id: {
            **expected_power(criterion, spec)._asdict(),
            "needed_items": needed_items(criterion, spec),
            "expected": msgspec.to_builtins(spec.decision_rule.expected),
        }
        for criterion in spec.decision_rule.criteria
    }


def trained_kernel(spec: Spec, calibration: dict[str, Any]) -> Any:
    """The kernel to train with: the arm's own, or the fallback that took its place."""
    arm, judged = gate.kernel_arm(spec), calibration["gate"]
    if arm is None:
        return None
    return arm.kernel if judged is None else judged["kernel"]


def arm_stage(arm: str, seed: int) -> str:
    """Name of the stage that trains an arm at a seed."""
    return f"arms/{arm}-seed-{seed}"


def evaluation_stage(arm: str, seed: int | None) -> str:
    """Name of the stage that evaluates an arm at a seed, or the start."""
    return f"evaluation/{arm if seed is None else f'{arm}-seed-{seed}'}"


def _stages(folder: Folder, spec: Spec) -> dict[str, Any]:
    """What is recorded so far."""
    alone = ("start", "preflight", "forced", "calibration", "pilot", "decision")
    found: dict[str, Any] = {name: folder.known(name) for name in alone}
    arms = [folder.known(arm_stage(arm.name, seed)) for seed in spec.seeds for arm in spec.arms]
    scores = [folder.known(evaluation_stage(*policy)) for policy in evaluated(spec)]
    for name, several in (("arms", arms), ("evaluation", scores)):
        found[name] = [one for one in several if one is not None] or None
    return {name: value for name, value in found.items() if value is not None}


def _arm(arm: Arm, stages: dict[str, Any]) -> dict[str, Any]:
    runs = [one for one in stages.get("arms", ()) if one["arm"] == arm.name]
    return {**msgspec.to_builtins(arm), "runs": runs}


def _gate_passed(spec: Spec, offline: Any, pilot: Any) -> bool | None:
    """True or False once it is known; None for no gate, or one that was not reached."""
    if not spec.activation_gate.applicable or offline is None:
        return None
    if not offline["passed"]:
        return False
    if pilot is None or pilot["stopped"] is not None:
        return None
    return pilot["gate"] is None or bool(pilot["gate"]["passed"])


def _revision(spec: Spec, offline: Any) -> dict[str, Any] | None:
    """What the approved fallback changed, before any training."""
    arm = gate.kernel_arm(spec)
    if arm is None or offline is None or not offline["revised"]:
        return None
    return {"arm": arm.name, "kernel": {"from": arm.kernel, "to": offline["kernel"]}}
