"""From a group's verdict to every trace that is trained on, with what led there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advlib import _checks
from advlib.grading._group import Candidate, CandidateGroup, Trace
from advlib.grading._group_credit import Statistics, measured, rank_credit, redistributed
from advlib.grading._quoted import quoted
from advlib.grading._standing import (
    CandidateInfo,
    VerdictArrays,
    candidate_info,
    completed_margins,
    tier_win_rates,
    verdict_arrays,
)
from advlib.grading._verdict import Evidence, Hack, Margin, Verdict


class TraceCredit(NamedTuple):
    """The advantage of one trace, and what led there.

    All but the first two are None, or empty, where there is no verdict.

    Attributes:
        advantage: in reward units.
        label: its candidate's label.
        hack: the hack level, after the citation check.
        evidence: the quotations, whatever the level.
        tier: place in the ranking, 0 best; None where the candidate is not ranked, as confirmed
            hacks are not.
        w: the candidate's win rate: in rewards mode among the ranked; in advantages mode over all
            tiers, that of confirmed hacks included. None where there is none, although in rewards
            mode 1/2 is then used above the mean.
        f: credit of Eq. 3 by that win rate; None where w is, and in advantages mode.
        scale: λ of Eq. 3, the group's; None in advantages mode.
        margins: the gap below each tier but the last, slight where the verdict says nothing; the
            large one above confirmed hacks is not listed. None in rewards mode.
    """

    advantage: float
    label: str
    hack: Hack | None = None
    evidence: tuple[Evidence, ...] = ()
    tier: int | None = None
    w: float | None = None
    f: float | None = None
    scale: float | None = None
    margins: tuple[Margin, ...] | None = None


def trace_credit(
    verdict: Verdict | None,
    group: CandidateGroup,
    *,
    f_min: float = 0.5,
    lambda_max: float = 1.5,
    statistics: Statistics = "traces",
) -> dict[str, TraceCredit]:
    """Credit of every trace of every candidate.

    In rewards mode each trace has its own reward, and its candidate's rank: the trace that
    represents a candidate decides whether the candidate passed, and whether the group is mixed. A
    trace without a reward, or one that ended in an error, is no measurement: it votes nowhere and
    gets 0, and so do all traces of a candidate whose representing trace has no reward. Without a
    verdict every trace gets its original reward minus the group's mean, and no hack drops.

    In advantages mode a candidate's advantage goes to all its traces; without a verdict that is 0.

    Args:
        verdict: checked, and after :func:`check_citations`; None where the group was not graded or
            its grading failed.
        group: the group.
        f_min: least credit, in [0, 1]; rewards mode.
        lambda_max: largest factor, at least 1; rewards mode.
        statistics: mean, minimum and sums over "traces" or over "candidates", as in
            :func:`advlib.gar`; rewards mode. Advantages mode always counts candidates.

    Returns:
        By trace id, in the order of the candidates and of their traces.

    Raises:
        OverflowError: rewards lie so far apart that an advantage does not fit float64.
        TypeError: a reward is not a number.
        ValueError: labels of verdict and group differ; a trace id stands twice; a candidate's
            representing trace is not among its traces; a reward is NaN or infinite; an option is
            out of range.
    """
    _checks.one_of("mode", group.mode, ("rewards", "advantages"))
    _checks.one_of("statistics", statistics, ("traces", "candidates"))
    f_min = _checks.number("f_min", f_min, 0, 1)
    lambda_max = _checks.number("lambda_max", lambda_max, 1)
    _check_traces(group)
    if group.mode == "advantages":
        return _by_rank(verdict, group)
    return _by_reward(verdict, group, f_min, lambda_max, statistics)


def _check_traces(group: CandidateGroup) -> None:
    seen: set[str] = set()
    for candidate in group.candidates:
        ids = [trace.id for trace in candidate.traces]
        if candidate.trace not in ids:
            raise ValueError(
                f"{candidate.label} must be represented by one of its traces; "
                f"{quoted(candidate.trace)} is none of them"
            )
        for trace in ids:
            if trace in seen:
                raise ValueError(
                    f"trace ids must be unique in a group; {quoted(trace)} is there twice"
                )
            seen.add(trace)


def _by_rank(verdict: Verdict | None, group: CandidateGroup) -> dict[str, TraceCredit]:
    if verdict is None:
        blank = [TraceCredit(0.0, label) for label in group.labels]
        return _copied(group, blank)
    arrays = verdict_arrays(verdict, group.labels)
    info = candidate_info(verdict)
    rates = tier_win_rates([*map(len, verdict.ranking), int(arrays.hacks.sum())])
    margins = completed_margins(verdict)
    found = []
    for label, advantage in zip(group.labels, rank_credit(arrays), strict=True):
        known = info[label]
        place = -1 if known.hack == "confirmed" else known.tier
        found.append(
            TraceCredit(
                advantage,
                label,
                hack=known.hack,
                evidence=known.evidence,
                tier=known.tier,
                w=None if place is None else rates[place],
                margins=margins,
            )
        )
    return _copied(group, found)


def _copied(group: CandidateGroup, credit: list[TraceCredit]) -> dict[str, TraceCredit]:
    return {
        trace.id: of_candidate
        for candidate, of_candidate in zip(group.candidates, credit, strict=True)
        for trace in candidate.traces
    }


def _by_reward(
    verdict: Verdict | None,
    group: CandidateGroup,
    f_min: float,
    lambda_max: float,
    statistics: Statistics,
) -> dict[str, TraceCredit]:
    if verdict is None:
        size = len(group.candidates)
        arrays = VerdictArrays(np.full(size, -1, np.int32), np.zeros(0), np.zeros(size, bool))
    else:
        arrays = verdict_arrays(verdict, group.labels)
    rows = [
        (which, trace, reward)
        for which, candidate in enumerate(group.candidates)
        for trace, reward in _measurements(candidate)
    ]
    ids = np.array([which for which, _, _ in rows], np.int32)
    result = redistributed(
        [reward for _, _, reward in rows],
        VerdictArrays(arrays.tiers[ids], arrays.margins, arrays.hacks[ids]),
        f_min=1.0 if verdict is None else f_min,  # full credit for all: rewards minus their mean
        lambda_max=lambda_max,
        candidate_ids=ids,
        statistics=statistics,
    )
    advantages = {row[1].id: a for row, a in zip(rows, result.advantages, strict=True)}
    about = {} if verdict is None else _ranked(verdict, group, f_min, result.scale)
    return {
        trace.id: about.get(candidate.label, TraceCredit(0.0, candidate.label))._replace(
            advantage=advantages[trace.id]
        )
        for candidate in group.candidates
        for trace in candidate.traces
    }


def _measurements(candidate: Candidate) -> list[tuple[Trace, float | None]]:
    """A candidate's traces and what each measured; first the one that speaks for all."""
    traces = sorted(candidate.traces, key=lambda trace: trace.id != candidate.trace)
    rewards = [
        measured(f"reward of trace {quoted(trace.id)}", trace.reward) if trace.clean else None
        for trace in traces
    ]
    if rewards[0] is None:
        rewards = [None] * len(rewards)
    return list(zip(traces, rewards, strict=True))


def _ranked(
    verdict: Verdict, group: CandidateGroup, f_min: float, scale: float
) -> dict[str, TraceCredit]:
    """What the verdict says of each candidate, the advantage still to be filled in."""
    passing = set(group.passing)
    counts = [sum(label in passing for label in tier) for tier in verdict.ranking]
    rates = tier_win_rates(counts)

    def credit(label: str, known: CandidateInfo) -> TraceCredit:
        won = None if known.tier is None or label not in passing else rates[known.tier]
        return TraceCredit(
            0.0,
            label,
            hack=known.hack,
            evidence=known.evidence,
            tier=known.tier,
            w=won,
            f=None if won is None else f_min + (1 - f_min) * won,
            scale=scale,
        )

    return {label: credit(label, known) for label, known in candidate_info(verdict).items()}
