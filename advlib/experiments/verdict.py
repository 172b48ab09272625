"""From gates and scores to one of three words, and the sentence that says why.

A gate that failed, a budget that does not suffice, an arm that did not end or an item that was not
scored all mean "inconclusive": what was not measured cannot be a failure of the treatment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from advlib import diagnostics
from advlib.diagnostics import Criterion, Intervals, JointDecision, PairedDecision
from advlib.experiments._checking import START
from advlib.experiments.spec import CriterionSpec, DecisionRule

Scores = Mapping[str, Mapping[str, float | None]]  # by policy, then by id of the item


class Verdict(NamedTuple):
    """How an experiment ended.

    Attributes:
        verdict: "validated", "failed" or "inconclusive".
        reason: why, in words.
        stopped_at: the stage that ended it early; None where the decision was reached.
    """

    verdict: str
    reason: str
    stopped_at: str | None


class Comparison(NamedTuple):
    """Two policies on the same items, beside the decision.

    Attributes:
        treatment: name of an arm.
        baseline: name of another one, or "start".
        decision: by Hoeffding at margin 0, by itself.
        intervals: the same difference by other methods.
        seeds: difference of the accuracies at each seed.
    """

    treatment: str
    baseline: str
    decision: PairedDecision
    intervals: Intervals
    seeds: tuple[float, ...]


def conclude(stages: Mapping[str, Any]) -> Verdict:
    """The verdict from the records of the stages that were run, in their order.

    Args:
        stages: plain JSON values by stage: "preflight" and "forced" with ``passed``, "calibration"
            with ``gate``, "pilot" with ``stopped``, ``gate``, ``restored`` and ``feasibility``,
            "arms", a list with ``finished``, "decision" with ``verdict``. A stage that is missing
            was not run.

    Returns:
        A :class:`Verdict`; "inconclusive" at the first stage that did not pass, and where the
        stages end before the decision.
    """
    for name, reason in _failures(stages):
        return Verdict("inconclusive", reason, name)
    decision = stages.get("decision")
    if decision is None:
        return Verdict("inconclusive", "the run has not reached its decision", "unfinished")
    if decision["verdict"] is None:
        return Verdict("inconclusive", decision["reason"], "decision")
    return Verdict(decision["verdict"], decision["reason"], None)


def _failures(stages: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    never = "No arm was trained in full, and the gate is never relaxed."
    preflight = stages.get("preflight")
    if preflight is not None and not preflight["passed"] and preflight.get("required", True):
        bad = [
            f"{arm} {name}"
            for arm, one in preflight.get("arms", {}).items()
            for name, found in one["comparisons"].items()
            if not found["passed"]
        ]
        told = f": {', '.join(bad)}" if bad else ""
        yield "preflight", f"The correctness preflight failed{told}."
    forced = stages.get("forced")
    if forced is not None and not forced["passed"]:
        yield "forced", "A forced test failed: the kernel does not give the baseline it must give."
    offline = (stages.get("calibration") or {}).get("gate")
    if offline is not None and not offline["passed"]:
        why = _told_kernels(offline["tried"])
        yield "calibration", f"The activation gate failed before training: {why}. {never}"
    pilot = stages.get("pilot")
    if pilot is not None and pilot["stopped"] is not None:
        yield "pilot", f"An arm did not end its pilot: {pilot['stopped']}."
    elif pilot is not None:
        if not pilot["restored"]:
            yield "pilot", "The arms did not begin from the same parameters."
        if pilot["gate"] is not None and not pilot["gate"]["passed"]:
            why = _told(pilot["gate"]["checks"])
            yield "pilot", f"The activation gate failed in the pilot: {why}. {never}"
        if not pilot["feasibility"]["feasible"]:
            limit = pilot["feasibility"]["max_wall_minutes"]
            yield (
                "pilot",
                f"The arms would not end within the budget of {limit:g} minutes, by the pilot's "
                "times. No arm was trained in full.",
            )
    for arm in stages.get("arms", ()):
        if not arm["finished"]:
            where = f"{arm['arm']}, seed {arm['seed']}"
            yield "arms", f"An arm did not end: {where}, {arm['reason']}."


def _told_kernels(tried: Sequence[Any]) -> str:
    which = ("the kernel", "the fallback approved beforehand")
    return "; ".join(
        f"{role}, {kernel}: {_told(checks)}"
        for role, (kernel, checks) in zip(which, tried, strict=False)
    )


def _told(checks: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(_told_check(one) for one in checks if not one["passed"])


def _told_check(one: Mapping[str, Any]) -> str:
    return f"{one['check']['metric']}, {one['reason']}"


def decide(rule: DecisionRule, scores: Scores) -> JointDecision:
    """Apply the rule to scores that it has not seen.

    Args:
        rule: of the spec.
        scores: of each policy that a criterion names; an item's score is the mean over the rule's
            seeds.

    Returns:
        The joint decision, by id of the criterion.

    Raises:
        ValueError: items do not pair up, or one was not scored: there is no verdict then.
    """
    criteria = {}
    for wanted in rule.criteria:
        treatment, baseline = sides(wanted)
        one, other = scores[treatment], scores[baseline]
        criteria[wanted.id] = Criterion(
            _values(one),
            _values(other),
            margin=wanted.margin,
            bounds=wanted.bounds,
            ids=(list(one), list(other)),
        )
    return diagnostics.joint_decision(criteria, alpha=rule.alpha)


def sides(criterion: CriterionSpec) -> tuple[str, str]:
    """Names of treatment and baseline."""
    by_weight = {weight: name for name, weight in criterion.weights.items()}
    return by_weight[1], by_weight[-1]


def told_decision(rule: DecisionRule, decision: JointDecision) -> str:
    """The decision in words."""
    parts = []
    for wanted in rule.criteria:
        found = decision.criteria[wanted.id]
        treatment, baseline = sides(wanted)
        why = {
            "validated": "the whole interval lies above the margin",
            "failed": "the whole interval lies below the margin",
            "inconclusive": "the margin lies within the interval",
        }[found.verdict]
        parts.append(
            f"{treatment} minus {baseline}: {found.difference:+.4f} over {found.num_items:,} "
            f"items, simultaneous {1 - rule.alpha:.0%} interval {found.lower:+.4f} to "
            f"{found.upper:+.4f}, margin {found.margin:+g}; {why}, so {found.verdict}"
        )
    return ". ".join(parts) + "."


def compare(
    arms: Sequence[str],
    scores: Scores,
    by_seed: Mapping[str, Sequence[float | None]],
    *,
    alpha: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> list[Comparison]:
    """Every arm against the start, and every two arms, each by itself.

    Args:
        arms: names.
        scores: of the arms and of "start".
        by_seed: accuracy of each arm at each seed, and of the start, the same at each.
        alpha: of each comparison.
        bounds: lowest and highest score.

    Returns:
        A list without those that cannot be made because an item was not scored.
    """
    pairs = [(arm, START) for arm in arms] + [(b, a) for a, b in combinations(arms, 2)]
    found = []
    for treatment, baseline in pairs:
        one, other = scores[treatment], scores[baseline]
        if any(value is None for value in (*one.values(), *other.values())):
            continue
        options: Any = {"alpha": alpha, "bounds": bounds, "ids": (list(one), list(other))}
        values = (_values(one), _values(other))
        found.append(
            Comparison(
                treatment,
                baseline,
                diagnostics.paired_decision(*values, margin=0.0, **options),
                diagnostics.intervals(*values, **options),
                tuple(
                    a - b
                    for a, b in zip(by_seed[treatment], by_seed[baseline], strict=True)
                    if a is not None and b is not None
                ),
            )
        )
    return found


def _values(scores: Mapping[str, float | None]) -> np.ndarray:
    return np.array([np.nan if score is None else score for score in scores.values()], np.float64)
