"""Other intervals for the same mean difference, each with what it promises.

One of them may be the rule if it was named before the data was seen. Choosing the narrowest
afterwards voids alpha; beside a decision they are secondary and labelled so.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._decision import half_width
from advlib.diagnostics._pairs import Ids, differences

SHUFFLE = 20260101  # of the order in which the betting interval meets the items


class Interval(NamedTuple):
    """An interval for a mean paired difference.

    Attributes:
        lower: lower bound.
        upper: upper bound.
        guarantee: "finite sample"; "exact given the discordant items"; or "asymptotic".
    """

    lower: float
    upper: float
    guarantee: str


class Intervals(NamedTuple):
    """The same difference, seen by several methods.

    Attributes:
        difference: mean of treatment minus baseline.
        hoeffding: the interval of :func:`paired_decision`.
        empirical_bernstein: Maurer and Pontil's, with the variance from the data.
        betting: hedged capital of Waudby-Smith and Ramdas.
        tango: score interval for a difference of paired proportions; None unless scores are binary.
        mcnemar: Clopper and Pearson's interval for the direction of the discordant items, times
            their share; None unless scores are binary.
        mcnemar_p: exact two-sided p-value of no difference; None unless scores are binary.
        only_treatment: items that only the treatment solved; None unless scores are binary.
        only_baseline: items that only the baseline solved; None unless scores are binary.
    """

    difference: float
    hoeffding: Interval
    empirical_bernstein: Interval
    betting: Interval
    tango: Interval | None
    mcnemar: Interval | None
    mcnemar_p: float | None
    only_treatment: int | None
    only_baseline: int | None


def intervals(
    treatment: Any,
    baseline: Any,
    *,
    alpha: float = 0.05,
    bounds: tuple[float, float] = (0.0, 1.0),
    ids: Ids | None = None,
) -> Intervals:
    """Intervals of several methods for the mean paired difference, two-sided, at the same alpha.

        hoeffding             d̄ ± R sqrt(ln(2/α) / (2n))
        empirical_bernstein   d̄ ± (sqrt(2 V ln(4/α) / n) + 7 R ln(4/α) / (3 (n - 1)))

    with R twice the range of a score and V the sample variance of the differences. The others have
    no closed form and are solved for.

    Args:
        treatment: (n,) scores.
        baseline: (n,) scores of the same items.
        alpha: α of each interval by itself.
        bounds: lowest and highest possible score.
        ids: as in :func:`paired_decision`.

    Returns:
        :class:`Intervals`.

    Raises:
        TypeError: scores are no numbers.
        ValueError: see :func:`paired_decision`.

    Source: A. Maurer, M. Pontil, "Empirical Bernstein bounds and sample variance penalization",
    COLT 2009; I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables
    by betting", JRSS B 2024; T. Tango, "Equivalence test and confidence interval for the difference
    in proportions for the paired-sample design", Statistics in Medicine 17, 1998.
    """
    pairs = differences(treatment, baseline, bounds, ids)
    mean, reach = float(pairs.mean()), bounds[1] - bounds[0]
    hoeffding = half_width(len(pairs), alpha=alpha, bounds=bounds)
    bernstein = _empirical_bernstein(pairs, reach, alpha)
    binary = np.isin(pairs, (-1, 0, 1)).all() and _two_values(treatment, baseline)
    wins, losses = int((pairs == 1).sum()), int((pairs == -1).sum())
    return Intervals(
        mean,
        Interval(mean - hoeffding, mean + hoeffding, "finite sample"),
        Interval(mean - bernstein, mean + bernstein, "finite sample"),
        _betting(pairs, reach, alpha),
        tango_interval(wins, losses, len(pairs), alpha=alpha) if binary else None,
        _mcnemar_interval(wins, losses, len(pairs), alpha) if binary else None,
        exact_mcnemar(wins, losses) if binary else None,
        wins if binary else None,
        losses if binary else None,
    )


def _two_values(*arms: Any) -> bool:
    return all(bool(np.isin(_checks.as_numpy("scores", arm), (0, 1)).all()) for arm in arms)


def _empirical_bernstein(pairs: np.ndarray, reach: float, alpha: float) -> float:
    count = len(pairs)
    if count < 2:
        return float("inf")
    logarithm = log(4 / alpha)
    variance = float(pairs.var(ddof=1))
    return sqrt(2 * variance * logarithm / count) + 7 * 2 * reach * logarithm / (3 * (count - 1))


def exact_mcnemar(only_treatment: int, only_baseline: int) -> float:
    """Two-sided p-value of no difference, from the items on which the arms disagree.

        p = min(1, 2 P(X <= min(b, c))),   X ~ Binomial(b + c, 1/2)

    Args:
        only_treatment: b, items that only the treatment solved.
        only_baseline: c, items that only the baseline solved.

    Returns:
        p; 1 where the arms never disagree.

    Raises:
        ValueError: a count is negative.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions
    or percentages", Psychometrika 12, 1947, with binomial instead of normal tails.
    """
    from scipy.special import bdtr

    if min(only_treatment, only_baseline) < 0:
        raise ValueError(f"counts must not be negative; got {only_treatment} and {only_baseline}")
    total = only_treatment + only_baseline
    return min(1.0, 2 * float(bdtr(min(only_treatment, only_baseline), total, 0.5)))


def _mcnemar_interval(wins: int, losses: int, count: int, alpha: float) -> Interval:
    from scipy.special import betaincinv

    total, guarantee = wins + losses, "exact given the discordant items"
    if not total:
        return Interval(0.0, 0.0, guarantee)
    low = betaincinv(wins, losses + 1, alpha / 2) if wins else 0.0
    high = betaincinv(wins + 1, losses, 1 - alpha / 2) if losses else 1.0
    share = total / count
    return Interval(float(2 * low - 1) * share, float(2 * high - 1) * share, guarantee)


def tango_interval(
    only_treatment: int, only_baseline: int, num_items: int, *, alpha: float = 0.05
) -> Interval:
    """Score interval for a difference of two proportions on the same items.

        (b - c - n δ)² / (n (2 q + δ (1 - δ))) <= z²

    where q is the maximum-likelihood chance that only the baseline solves an item if the true
    difference is δ.

    Args:
        only_treatment: b.
        only_baseline: c.
        num_items: n.
        alpha: z is the normal quantile of 1 - α/2.

    Returns:
        The interval of all δ that the score test does not reject.

    Raises:
        ValueError: counts do not fit n, or alpha is out of range.

    Source: T. Tango, "Equivalence test and confidence interval for the difference in proportions
    for the paired-sample design", Statistics in Medicine 17, 1998.
    """
    from scipy.special import ndtri

    wins, losses = only_treatment, only_baseline
    if min(wins, losses) < 0 or wins + losses > num_items or num_items < 1:
        raise ValueError(
            f"counts must not be negative, nor exceed num_items together; got {wins}, {losses} "
            f"of {num_items}"
        )
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1; got {alpha!r}")
    limit, seen = float(ndtri(1 - alpha / 2)), (wins - losses) / num_items

    def rejected(delta: float) -> bool:
        quadratic = 2 * num_items
        linear = (2 * num_items - wins + losses) * delta - wins - losses
        constant = -losses * delta * (1 - delta)
        root = sqrt(max(0.0, linear**2 - 4 * quadratic * constant))
        loss = (root - linear) / (2 * quadratic)
        variance = num_items * (2 * loss + delta * (1 - delta))
        gap = abs(wins - losses - num_items * delta)
        return gap > limit * sqrt(max(0.0, variance))

    return Interval(_border(rejected, -1.0, seen), _border(rejected, 1.0, seen), "asymptotic")


def _border(rejected: Any, outside: float, inside: float) -> float:
    """Where a test begins to reject, between a value that it keeps and an end of the range."""
    if not rejected(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if rejected(middle) else (outside, middle)
    return (outside + inside) / 2


def _betting(pairs: np.ndarray, reach: float, alpha: float) -> Interval:
    """All means against which no gambler has made 1/α of 1, betting on either side.

    A bet is what the items before it suggest (the predictable plug-in for a known number of items),
    cut at half of what could ruin; half of the money is on either side.
    """
    unit = (pairs / reach + 1) / 2  # to [0, 1]
    unit = np.random.default_rng(SHUFFLE).permutation(unit)
    before = np.arange(1, len(unit) + 1)
    means = (0.5 + np.cumsum(unit)) / (before + 1)
    variances = (0.25 + np.cumsum((unit - means) ** 2)) / (before + 1)
    known = np.concatenate([[0.25], variances[:-1]])
    bets = np.sqrt(2 * log(2 / alpha) / (len(unit) * known))

    def ruined(mean: float, side: int) -> bool:
        ahead = side * (unit - mean)
        worst = mean if side > 0 else 1 - mean
        stakes = np.minimum(bets, 0.5 / worst) if worst > 0 else bets
        fortune = np.cumsum(np.log1p(stakes * ahead)).max()
        return bool(fortune >= log(2 / alpha))

    middle = float(unit.mean())
    low = _border(lambda mean: ruined(mean, 1), 0.0, middle)
    high = _border(lambda mean: ruined(mean, -1), 1.0, middle)
    return Interval((2 * low - 1) * reach, (2 * high - 1) * reach, "finite sample")
