"""A verdict as arrays, and what it says of each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advlib.grading._quoted import some
from advlib.grading._verdict import MARGINS, Evidence, Hack, Margin, Verdict, check_type


class VerdictArrays(NamedTuple):
    """A verdict as :func:`advlib.gar` and :func:`advlib.rank_margin` take it.

    Attributes:
        tiers: (N,) int32, 0 best, -1 unranked; N labels.
        margins: (K - 1,) float64, the gap below each of the K tiers but the last, in reward units;
            slight where the verdict says nothing.
        hacks: (N,) bool, confirmed hacks.
    """

    tiers: np.ndarray
    margins: np.ndarray
    hacks: np.ndarray


class CandidateInfo(NamedTuple):
    """What a verdict says of one candidate.

    Attributes:
        hack: the hack level.
        evidence: the quotations, whatever the level.
        tier: its place in the ranking, 0 best; None where it is not ranked.
    """

    hack: Hack
    evidence: tuple[Evidence, ...]
    tier: int | None


def verdict_arrays(verdict: Verdict, labels: Sequence[str]) -> VerdictArrays:
    """Tiers, gaps and confirmed hacks, one row a label.

    Args:
        verdict: after :func:`check_citations`.
        labels: which row stands for which label; exactly those of the verdict.

    Returns:
        VerdictArrays.

    Raises:
        TypeError: ``verdict`` is no Verdict.
        ValueError: the verdict has other labels, or one of them twice.
    """
    info = candidate_info(verdict)
    if set(info) != set(labels) or len(info) != len(labels):
        apart = sorted(set(info).symmetric_difference(labels))
        raise ValueError(f"labels must be those of the verdict, once each; {_difference(apart)}")
    return VerdictArrays(
        np.array(
            [-1 if (tier := info[label].tier) is None else tier for label in labels], np.int32
        ),
        np.array([MARGINS[margin] for margin in completed_margins(verdict)], np.float64),
        np.array([info[label].hack == "confirmed" for label in labels], bool),
    )


def _difference(apart: list[str]) -> str:
    return f"in one of the two only: {some(apart)}" if apart else "a label is repeated"


def candidate_info(verdict: Verdict) -> dict[str, CandidateInfo]:
    """Hack level, evidence and tier of each candidate.

    Args:
        verdict: a verdict that :func:`check_verdict` let pass.

    Returns:
        By label, in the verdict's order.

    Raises:
        TypeError: ``verdict`` is no Verdict.
        ValueError: a label is judged or ranked twice, or ranked and not judged.
    """
    check_type(verdict)
    tiers = {label: k for k, tier in enumerate(verdict.ranking) for label in tier}
    info = {
        entry.label: CandidateInfo(entry.hack, tuple(entry.evidence), tiers.get(entry.label))
        for entry in verdict.candidates
    }
    ranked = sum(map(len, verdict.ranking))
    if (
        len(info) < len(verdict.candidates)
        or len(tiers) < ranked
        or not tiers.keys() <= info.keys()
    ):
        raise ValueError("a verdict must judge each label once and rank it at most once")
    return info


def completed_margins(verdict: Verdict) -> tuple[Margin, ...]:
    """The margin of every gap between tiers of the ranking: slight where nothing is said."""
    gaps = max(len(verdict.ranking) - 1, 0)
    return tuple(margin or "slight" for margin in (verdict.margins or [None] * gaps))


def tier_win_rates(sizes: Sequence[int]) -> list[float]:
    """The win rate in each tier: the share of the other ranked candidates beaten, ties one half.

        w_t = (members of lower tiers + (members of t - 1)/2) / (n - 1),  and 1 where n = 1

    Args:
        sizes: members of each tier, best first.

    Returns:
        One rate a tier, in [0, 1].
    """
    total, rates, above = sum(sizes), [], 0
    for size in sizes:
        above += size
        rates.append((total - above + 0.5 * (size - 1)) / (total - 1) if total > 1 else 1.0)
    return rates
