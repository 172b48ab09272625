"""Whether two graders agree, which is what drift towards pleasing one of them changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from advlib.grading._outcome import GradedGroup
from advlib.grading._quoted import quoted


class JudgeAgreement(NamedTuple):
    """How far two graders agree about the same groups; None where it is undefined.

    Attributes:
        tau_b: Kendall's τ_b of the tiers, over pairs of candidates of one group that both ranked.
        top_tier: mean over groups of |A ∩ B| / |A ∪ B|, A and B the two best tiers.
        kappa: Cohen's κ of the hack levels as the graders gave them.
        num_groups: graded by both.
        num_pairs: of candidates that both ranked.
        num_candidates: judged by both.
    """

    tau_b: float | None
    top_tier: float | None
    kappa: float | None
    num_groups: int
    num_pairs: int
    num_candidates: int


def judge_agreement(first: Iterable[GradedGroup], second: Iterable[GradedGroup]) -> JudgeAgreement:
    """Agreement of two graders over the groups that both graded.

        τ_b = (C - D) / √((C + D + T₁)(C + D + T₂));    κ = (p_o - p_e) / (1 - p_e)

    C and D count pairs that both order alike or in opposite ways, T₁ and T₂ those that only the
    first or only the second one ties. p_o is the share of candidates with equal levels, p_e what
    two graders with the same frequencies would share by chance. Candidates are matched by the trace
    that represents them, whatever their labels. A policy that learns to please the grader it is
    trained with shows as agreement with another grader that falls over training.

    Args:
        first: one grader's results.
        second: the other's, in any order.

    Raises:
        ValueError: a group stands twice in one of them.

    Source: M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945;
    J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological
    Measurement 20, 1960.
    """
    ours, theirs = _verdicts("first", first), _verdicts("second", second)
    agreeing, opposed, only_ours, only_theirs, pairs = 0, 0, 0, 0, 0
    overlaps: list[float] = []
    levels: list[tuple[str, str]] = []
    common = [group for group in ours if group in theirs]
    for group in common:
        mine, other = ours[group], theirs[group]
        levels += [(mine.levels[t], other.levels[t]) for t in mine.levels if t in other.levels]
        if mine.tiers and other.tiers:
            overlaps.append(_overlap(mine.tiers, other.tiers))
        both = [trace for trace in mine.tiers if trace in other.tiers]
        a = np.array([mine.tiers[trace] for trace in both])
        b = np.array([other.tiers[trace] for trace in both])
        for nth in range(len(both) - 1):
            x, y = np.sign(a[nth] - a[nth + 1 :]), np.sign(b[nth] - b[nth + 1 :])
            agreeing += int((x * y > 0).sum())
            opposed += int((x * y < 0).sum())
            only_ours += int(((x == 0) & (y != 0)).sum())
            only_theirs += int(((x != 0) & (y == 0)).sum())
            pairs += len(x)
    ordered = agreeing + opposed
    product = (ordered + only_ours) * (ordered + only_theirs)
    return JudgeAgreement(
        tau_b=(agreeing - opposed) / product**0.5 if product else None,
        top_tier=float(np.mean(overlaps)) if overlaps else None,
        kappa=_kappa(levels),
        num_groups=len(common),
        num_pairs=pairs,
        num_candidates=len(levels),
    )


class _Judged(NamedTuple):
    """One grader's view of a group, by trace."""

    levels: dict[str, str]
    tiers: dict[str, int]


def _verdicts(name: str, graded: Iterable[GradedGroup]) -> dict[str, _Judged]:
    found: dict[str, _Judged] = {}
    for one in graded:
        if one.claimed is None:
            continue
        if one.group in found:
            raise ValueError(f"{name} has group {quoted(one.group)} twice")
        levels: dict[str, str] = {
            one.labels[entry.label]: entry.hack for entry in one.claimed.candidates
        }
        ranking = enumerate(one.claimed.ranking)
        tiers = {one.labels[label]: nth for nth, tier in ranking for label in tier}
        found[one.group] = _Judged(levels, tiers)
    return found


def _overlap(first: Mapping[str, int], second: Mapping[str, int]) -> float:
    a = {trace for trace, tier in first.items() if tier == 0}
    b = {trace for trace, tier in second.items() if tier == 0}
    return len(a & b) / len(a | b)


def _kappa(levels: list[tuple[str, str]]) -> float | None:
    total = len(levels)
    if not total:
        return None
    observed = sum(a == b for a, b in levels)
    # In whole numbers, since 1 - p_e = 0 must be seen exactly.
    expected = sum(
        sum(a == level for a, _ in levels) * sum(b == level for _, b in levels)
        for level in {level for pair in levels for level in pair}
    )
    if expected == total**2:
        return None
    return (observed * total - expected) / (total**2 - expected)
