"""The order of work: each stage is on disk before the next one begins."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from advlib.experiments._calibration import calibrate
from advlib.experiments._checking import START
from advlib.experiments._evaluation import evaluate, evaluated, item_scores
from advlib.experiments._folder import Folder, is_full, json_text, plain, write
from advlib.experiments._lock import locked
from advlib.experiments._policies import Given
from advlib.experiments._preflight import forced, preflight
from advlib.experiments._record import arm_stage, evaluation_stage, record_of, trained_kernel
from advlib.experiments._revisions import changes
from advlib.experiments._setup import set_up
from advlib.experiments._start import given_to, restored, start
from advlib.experiments._training import pilot, run_arm
from advlib.experiments._work import Work, begin_work
from advlib.experiments.reading import SpecError, check_spec, spec_json
from advlib.experiments.spec import Spec
from advlib.experiments.verdict import compare, conclude, decide, told_decision


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
        OSError: a file cannot be written; the run can be resumed when there is room.
    """
    check_spec(spec)
    say = told or (lambda line: None)
    place = Folder(output)
    # Before anything is written: a spec may name files that are not there.
    setup = set_up(spec, folder=Path(folder), given=given or Given())
    work = begin_work(spec, setup, place, told=say, progress=progress)
    with locked(place.path), _room(place.path):
        place.begin(spec_json(spec), resume=resume)
        record = record_of(spec, dict(_stages(work)))
        write(place.path / "record.json", json_text(record))
    return plain(record)


@contextmanager
def _room(folder: Path) -> Iterator[None]:
    """A full disk is told as one, whatever a library makes of it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SpecError) or not is_full(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error


def _stages(work: Work) -> Iterator[tuple[str, Any]]:
    """Stage after stage, up to the first that ends the run."""
    spec, place = work.spec, work.folder
    begun = _stage(work, "start", lambda: start(work), "the policy that all arms begin from")
    now = plain(given_to(work))
    different = changes({name: begun[name] for name in now}, now)
    if different:
        raise SpecError(f"{place.path} was begun with something else: {'; '.join(different)}")
    yield "start", begun
    params, _ = restored(work, begun)

    def ended(**stages: Any) -> bool:
        return conclude(stages).stopped_at != "unfinished"

    found = _stage(work, "preflight", lambda: preflight(work, params), "correctness preflight")
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
    kernel = trained_kernel(spec, calibration)
    found = _stage(work, "pilot", lambda: pilot(work, begun, kernel), "pilot of each arm")
    yield "pilot", found
    if ended(pilot=found):
        return
    arms: list[dict[str, Any]] = []
    for seed in spec.seeds:
        for arm in spec.arms:
            run = partial(run_arm, work, begun, arm, seed, kernel)
            arms.append(
                _stage(work, arm_stage(arm.name, seed), run, f"arm {arm.name}, seed {seed}")
            )
            if ended(arms=arms):
                yield "arms", arms
                return
    yield "arms", arms
    digests = {(one["arm"], one["seed"]): one["params_sha256"] for one in arms}
    digests[START, None] = begun["params_sha256"]
    scores = [
        _stage(
            work,
            evaluation_stage(arm, seed),
            partial(evaluate, work, arm, seed, digests[arm, seed]),
            f"evaluation of {arm}" + ("" if seed is None else f", seed {seed}"),
        )
        for arm, seed in evaluated(spec)
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


def _decision(work: Work, evaluation: list[dict[str, Any]]) -> dict[str, Any]:
    """The decision by the rule, and every comparison beside it."""
    spec, rule = work.spec, work.spec.decision_rule
    seeds = rule.seeds or spec.seeds
    items = {(row["arm"], row["seed"]): item_scores(work, row) for row in evaluation}
    scores = {START: items[START, None]}
    for arm in spec.arms:
        scores[arm.name] = _mean_scores([items[arm.name, seed] for seed in seeds])
    accuracy = {(row["arm"], row["seed"]): row["accuracy"] for row in evaluation}
    by_seed = {arm.name: [accuracy[arm.name, seed] for seed in spec.seeds] for arm in spec.arms}
    by_seed[START] = [accuracy[START, None]] * len(spec.seeds)
    bounds = rule.criteria[0].bounds
    found: dict[str, Any] = {
        "seeds": list(seeds),
        "by_seed": by_seed,
        "comparisons": [],
    }
    try:
        found["comparisons"] = compare(
            [arm.name for arm in spec.arms], scores, by_seed, alpha=rule.alpha, bounds=bounds
        )
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
