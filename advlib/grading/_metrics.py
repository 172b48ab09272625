"""What is logged of gradings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

import numpy as np

from advlib.grading._credit import TraceCredit
from advlib.grading._group import Candidate, CandidateGroup, Reason
from advlib.grading._outcome import GradedGroup

_Sizes = Mapping[str, tuple[int | None, int]]  # by label: response length, number of turns


def grading_metrics(
    graded: Iterable[GradedGroup], groups: Iterable[CandidateGroup] = ()
) -> dict[str, float]:
    """Metrics of a set of gradings, by the names that trainers log.

    Let T be the groups that were to be graded, G ⊆ T those that were, and P, n and w a graded
    group's passing candidates, its ranked candidates and their win rates.

        gar/graded             |G| / |T|
        gar/fallback/{reason}  share of T that fell back for stale, timeout, error or invalid
        gar/latency            mean over T of the seconds of waiting and grading
        gar/waiting            mean over T of the seconds until there was a slot
        gar/grader_tokens      mean of input + output tokens, over the groups of T that report both
        gar/grader_cost        mean cost, over the groups of T that report one
        gar/lambda             mean over G of λ; rewards mode
        gar/f                  mean of f over the ranked candidates of G; rewards mode
        gar/win_rate           mean of w over the candidates of G in a tier; advantages mode
        gar/all_fail           share of G with an empty ranking: nothing was left to rank
        gar/hack_confirmed     share of confirmed hacks, after citations, of the passing candidates
        gar/hack_suspected     share of suspected ones, those with a failed citation included
        gar/citation_failed    share of claimed confirmed hacks whose citations failed, over all
                               candidates of G
        gar/tie_fraction       Σ_G Σ_tiers C(size, 2) / Σ_G C(n, 2): pairs ranked alike
        gar/spearman_length    ρ̄ of w and response length; ρ̄ = Σ_G (n_g - 1) ρ_g / Σ_G (n_g - 1)
        gar/spearman_turns     ρ̄ of w and number of turns

    ρ_g is Spearman's rank correlation over the ranked candidates of one group, since lengths of
    different tasks do not compare; 1 / (n_g - 1) is its variance where there is no dependence. f
    grows with w, so this is the correlation with f too. Groups with fewer than two such candidates,
    or in which one of the two is constant, have no ρ_g and are left out.

    Args:
        graded: what :class:`Finalizer` or :func:`grade_all` returned.
        groups: their candidates, for lengths and turns; in any order, read once and not kept. A
            group that is not among them is left out of the correlations.

    Returns:
        A metric over nothing is absent: it is never 0.
    """
    every = [one for one in graded if one.graded or one.fallback_reason is not None]
    sizes = {group.id: dict(_sizes(group)) for group in groups}
    done = [one for one in every if one.graded]
    found: dict[str, list[float]] = {
        "graded": [float(one.graded) for one in every],
        **{
            f"fallback/{reason}": [float(one.fallback_reason == reason) for one in every]
            for reason in get_args(Reason)
        },
        "latency": [one.waiting + one.grading for one in every],
        "waiting": [one.waiting for one in every],
        "grader_tokens": list(_tokens(every)),
        "grader_cost": [o.answer.cost for o in every if o.answer and o.answer.cost is not None],
        "lambda": [scale for one in done if (scale := _scale(one)) is not None],
        "f": [c.f for one in done for c in _by_label(one).values() if c.f is not None],
        "win_rate": [
            c.w
            for one in done
            if one.mode == "advantages"
            for c in _by_label(one).values()
            if c.w is not None
        ],
        "all_fail": [float(not any(_ranking(one))) for one in done],
        "hack_confirmed": list(_levels(done, "confirmed")),
        "hack_suspected": list(_levels(done, "suspected")),
        "citation_failed": list(_failed_citations(done)),
    }
    metrics = {f"gar/{name}": float(np.mean(values)) for name, values in found.items() if values}
    pairs = sum(_pairs(sum(map(len, _ranking(one)))) for one in done)
    if pairs:
        tied = sum(_pairs(len(tier)) for one in done for tier in _ranking(one))
        metrics["gar/tie_fraction"] = tied / pairs
    for nth, name in enumerate(("length", "turns")):
        rho = _spearman(done, sizes, nth)
        if rho is not None:
            metrics[f"gar/spearman_{name}"] = rho
    return metrics


def _sizes(group: CandidateGroup) -> Iterator[tuple[str, tuple[int | None, int]]]:
    for candidate in group.candidates:
        yield candidate.label, (_response_length(candidate), len(candidate.turns))


def _response_length(candidate: Candidate) -> int | None:
    return next(
        (trace.response_length for trace in candidate.traces if trace.id == candidate.trace), None
    )


def _by_label(graded: GradedGroup) -> dict[str, TraceCredit]:
    """Each candidate's credit, once, whatever the number of its traces."""
    return {label: graded.credit[trace] for label, trace in graded.labels.items()}


def _ranking(graded: GradedGroup) -> list[list[str]]:
    return [] if graded.verdict is None else graded.verdict.ranking


def _scale(graded: GradedGroup) -> float | None:
    return next((credit.scale for credit in graded.credit.values()), None)


def _tokens(graded: Iterable[GradedGroup]) -> Iterator[float]:
    for one in graded:
        answer = one.answer
        if answer and answer.input_tokens is not None and answer.output_tokens is not None:
            yield answer.input_tokens + answer.output_tokens


def _levels(graded: Iterable[GradedGroup], level: str) -> Iterator[float]:
    for one in graded:
        credit = _by_label(one)
        yield from (float(credit[label].hack == level) for label in one.passing)


def _failed_citations(graded: Iterable[GradedGroup]) -> Iterator[float]:
    for one in graded:
        credit = _by_label(one)
        for claim in one.claimed.candidates if one.claimed else ():
            if claim.hack == "confirmed":
                yield float(credit[claim.label].hack != "confirmed")


def _pairs(size: int) -> int:
    return size * (size - 1) // 2


def _spearman(graded: Iterable[GradedGroup], sizes: Mapping[str, _Sizes], nth: int) -> float | None:
    weighted, weight = 0.0, 0
    for one in graded:
        known = sizes.get(one.group, {})
        rates, lengths = [], []
        for tier in _ranking(one):
            for label in tier:
                rate = one.credit[one.labels[label]].w
                length = known[label][nth] if label in known else None
                if rate is not None and length is not None:
                    rates.append(rate)
                    lengths.append(length)
        if len(set(rates)) > 1 and len(set(lengths)) > 1:
            from scipy import stats  # slow to import, and needed only here

            rho = float(stats.spearmanr(rates, lengths).statistic)
            weighted += (len(rates) - 1) * rho
            weight += len(rates) - 1
    return weighted / weight if weight else None
