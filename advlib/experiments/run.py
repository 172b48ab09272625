"""The order of work: each stage is on disk before the next one begins."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from advlib.experiments import gate
from advlib.experiments._calibration import calibrate
from advlib.experiments._checking import START, expected_power, needed_items
from advlib.experiments._evaluation import evaluate, evaluated, evaluator, item_scores
from advlib.experiments._folder import Folder, json_text, plain, write
from advlib.experiments._lock import locked
from advlib.experiments._policies import Given
from advlib.experiments._preflight import forced, preflight
from advlib.experiments._revisions import changes, revisions
from advlib.experiments._setup import set_up
from advlib.experiments._start import restored, start
from advlib.experiments._training import pilot, run_arm
from advlib.experiments._work import Work, begin_work
from advlib.experiments.reading import SpecError, check_spec, spec_hash, spec_json
from advlib.experiments.spec import Arm, Spec
from advlib.experiments.verdict import compare, conclude, decide, told_decision

FORMAT = "advlib.experiment/1"


def run_experiment(
    spec: Spec,
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    folder: str | os.PathLike[str] = ".",
    given: Given | None = None,
    told: Callable[[str], None] | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Run an experiment to its verdict.

    Start, preflight, forced tests, calibration with its gate, pilot with the rest of the gate and
    the projection of times, arms, evaluation, decision: each is recorded before the next begins,
    and the first that fails ends the run with the verdict "inconclusive". Two runs of one spec on
    one machine write the same record, byte for byte, however often they were killed and resumed.

    Args:
        spec: the experiment.
        output: the run's folder; new, or that of a run to resume.
        resume: go on where an earlier run of the same spec ended.
        folder: that relative paths of the spec start from.
        given: policy and environment where the spec says "given".
        told: called with a line on what begins.
        progress: show a bar for each arm.

    Returns:
        The record, as ``record.json`` holds it.

    Raises:
        SpecError: the design cannot do what it is for, the folder holds something else or something
            damaged, another process runs in it, or versions changed since the run began.
        ImportError: an optional package is missing; names the extra.
        OSError: a file cannot be written.
    """
    check_spec(spec)
    say = told or (lambda line: None)
    place = Folder(output)
    # Before anything is written: a spec may name files that are not there.
    setup = set_up(spec, folder=Path(folder), given=given or Given())
    work = begin_work(spec, setup, place, told=say, progress=progress)
    with locked(place.path):
        place.begin(spec_json(spec), resume=resume)
        record = _record(work, dict(_stages(work)))
        write(place.path / "record.json", json_text(record))
    return plain(record)


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The record of a run that came to its end.

    Args:
        folder: of the run.

    Returns:
        What :func:`run_experiment` returned.

    Raises:
        OSError: there is no record.
        SpecError: the file is no record of an experiment.
    """
    path = Path(folder) / "record.json"
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    found = record.get("format") if isinstance(record, dict) else type(record).__name__
    if found != FORMAT:
        raise SpecError(f"{path}: must be a record of format {FORMAT!r}; got {found!r}")
    return dict(record)


def _stages(work: Work) -> Iterator[tuple[str, Any]]:
    """Stage after stage, up to the first that ends the run."""
    spec, place = work.spec, work.folder
    begun = _stage(work, "start", lambda: start(work), "the policy that all arms begin from")
    different = changes(begun["revisions"], revisions(work.setup.files))
    if different:
        raise SpecError(f"{place.path} was begun with something else: {'; '.join(different)}")
    yield "start", begun
    params, _ = restored(work, begun)

    def ended(**stages: Any) -> bool:
        return conclude(stages).stopped_at != "unfinished"

    found = _stage(work, "preflight", lambda: preflight(work, params), "correctness preflight")
    found["required"] = spec.correctness_preflight.required
    yield "preflight", found
    if ended(preflight=found):
        return
    found = _stage(work, "forced", lambda: forced(work), "forced tests")
    yield "forced", found
    if ended(forced=found):
        return
    calibration = _stage(
        work, "calibration", lambda: calibrate(work, params), "calibration and offline gate"
    )
    yield "calibration", calibration
    if ended(calibration=calibration):
        return
    kernel = _kernel(spec, calibration)
    found = _stage(work, "pilot", lambda: pilot(work, begun, kernel), "pilot of each arm")
    yield "pilot", found
    if ended(pilot=found):
        return
    arms = [
        _stage(
            work,
            f"arms/{arm.name}-seed-{seed}",
            partial(run_arm, work, begun, arm, seed, kernel),
            f"arm {arm.name}, seed {seed}",
        )
        for seed in spec.seeds
        for arm in spec.arms
    ]
    yield "arms", arms
    if ended(arms=arms):
        return
    scores = [
        _stage(
            work,
            f"evaluation/{arm if seed is None else f'{arm}-seed-{seed}'}",
            partial(evaluate, work, arm, seed),
            f"evaluation of {arm}" + ("" if seed is None else f", seed {seed}"),
        )
        for arm, seed in evaluated(work)
    ]
    yield "evaluation", scores
    yield "decision", _stage(work, "decision", lambda: _decision(work, scores), "decision")


def _stage(work: Work, name: str, run: Callable[[], dict[str, Any]], told: str) -> dict[str, Any]:
    def timed() -> dict[str, Any]:
        work.told(told)
        with _clock(work, name):
            return run()

    return work.folder.stage(name, timed)


@contextmanager
def _clock(work: Work, name: str) -> Iterator[None]:
    begun = time.perf_counter()
    try:
        yield
    finally:
        work.folder.time(name, time.perf_counter() - begun)


def _kernel(spec: Spec, calibration: dict[str, Any]) -> Any:
    """The kernel to train with: the arm's own, or the fallback that took its place."""
    arm, judged = gate.kernel_arm(spec), calibration["gate"]
    if arm is None:
        return None
    return arm.kernel if judged is None else judged["kernel"]


def _decision(work: Work, evaluation: list[dict[str, Any]]) -> dict[str, Any]:
    """The decision by the rule, and every comparison beside it."""
    spec, rule = work.spec, work.spec.decision_rule
    seeds = rule.seeds or spec.seeds
    scores = {START: item_scores(work, START, None)}
    for arm in spec.arms:
        scores[arm.name] = _mean_scores([item_scores(work, arm.name, seed) for seed in seeds])
    accuracy = {(row["arm"], row["seed"]): row["accuracy"] for row in evaluation}
    by_seed = {arm.name: [accuracy[arm.name, seed] for seed in spec.seeds] for arm in spec.arms}
    by_seed[START] = [accuracy[START, None]] * len(spec.seeds)
    bounds = rule.criteria[0].bounds
    found: dict[str, Any] = {
        "seeds": list(seeds),
        "by_seed": by_seed,
        "comparisons": compare(
            [arm.name for arm in spec.arms], scores, by_seed, alpha=rule.alpha, bounds=bounds
        ),
    }
    try:
        decision = decide(rule, scores)
    except ValueError as error:
        return {
            **found,
            "verdict": None,
            "reason": f"There is no verdict: {error}.",
            "criteria": {},
        }
    return {
        **found,
        "verdict": decision.verdict,
        "reason": told_decision(rule, decision),
        "criteria": decision.criteria,
    }


def _mean_scores(seeds: list[dict[str, float | None]]) -> dict[str, float | None]:
    """An item's mean over seeds; None where one of them was not measured."""
    found: dict[str, float | None] = {}
    for item in seeds[0]:
        values = [scores[item] for scores in seeds]
        known = [value for value in values if value is not None]
        found[item] = sum(known) / len(known) if len(known) == len(values) else None
    return found


def _record(work: Work, stages: dict[str, Any]) -> dict[str, Any]:
    """Everything that is said of a run, in one document without a clock."""
    spec = work.spec
    verdict = conclude(stages)
    calibration, pilot_found = stages.get("calibration"), stages.get("pilot")
    offline = None if calibration is None else calibration["gate"]
    kernel = None if calibration is None else _kernel(spec, calibration)
    return {
        "format": FORMAT,
        "title": spec.title,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "stopped_at": verdict.stopped_at,
        "spec": msgspec.to_builtins(spec),
        "spec_sha256": spec_hash(spec),
        "revised": _revision(spec, offline),
        "start": stages.get("start"),
        "preflight": stages.get("preflight"),
        "forced": stages.get("forced"),
        "calibration": calibration,
        "gate": {
            "applicable": spec.activation_gate.applicable,
            "passed": _gate_passed(spec, offline, pilot_found),
            "kernel": kernel,
            "offline": offline,
            "pilot": None if pilot_found is None else pilot_found["gate"],
        },
        "pilot": pilot_found,
        "power": {
            criterion.id: {
                **expected_power(criterion, spec)._asdict(),
                "needed_items": needed_items(criterion, spec),
                "expected": msgspec.to_builtins(spec.decision_rule.expected),
            }
            for criterion in spec.decision_rule.criteria
        },
        "arms": [_arm(arm, stages) for arm in spec.arms],
        "evaluation": None
        if "evaluation" not in stages
        else {"evaluator": evaluator(work), "policies": stages["evaluation"]},
        "decision": stages.get("decision"),
    }


def _arm(arm: Arm, stages: dict[str, Any]) -> dict[str, Any]:
    runs = [one for one in stages.get("arms", ()) if one["arm"] == arm.name]
    return {**msgspec.to_builtins(arm), "runs": runs}


def _gate_passed(spec: Spec, offline: Any, pilot_found: Any) -> bool | None:
    """True or False once it is known; None for no gate, or one that was not reached."""
    if not spec.activation_gate.applicable or offline is None:
        return None
    if not offline["passed"]:
        return False
    if pilot_found is None or pilot_found["stopped"] is not None:
        return None
    return pilot_found["gate"] is None or bool(pilot_found["gate"]["passed"])


def _revision(spec: Spec, offline: Any) -> dict[str, Any] | None:
    """What the approved fallback changed, before any training."""
    arm = gate.kernel_arm(spec)
    if arm is None or offline is None or not offline["revised"]:
        return None
    return {"arm": arm.name, "kernel": {"from": arm.kernel, "to": offline["kernel"]}}
