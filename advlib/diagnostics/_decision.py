"""Was the treatment as good as the baseline? A rule fixed before the data, and one of three words.

The interval is Hoeffding's: it holds for every number of items and every distribution of bounded
scores, and pays for that in width. Narrower ones stand in ``_intervals``, under their own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log, sqrt
from typing import Any, Literal, NamedTuple

from advlib import _checks
from advlib.diagnostics._pairs import Ids, differences

Verdict = Literal["validated", "failed", "inconclusive"]
METHOD = "paired_hoeffding"


class PairedDecision(NamedTuple):
    """A verdict on a mean difference, and what it rests on.

    Attributes:
        verdict: "validated" if ``lower > margin``, "failed" if ``upper < margin``, else
            "inconclusive"; both inequalities are strict.
        difference: mean over items of treatment minus baseline.
        lower: difference - half_width; not cut at the range of a difference.
        upper: difference + half_width.
        half_width: of the simultaneous interval.
        margin: the difference that was asked about.
        alpha: chance that any of the criteria's intervals misses its true difference.
        num_criteria: criteria that share ``alpha``.
        num_items: pairs of scores.
        method: name of the interval.
    """

    verdict: Verdict
    difference: float
    lower: float
    upper: float
    half_width: float
    margin: float
    alpha: float
    num_criteria: int
    num_items: int
    method: str


class Criterion(NamedTuple):
    """One of several questions that are decided together.

    Attributes:
        treatment: (n,) scores of the treatment.
        baseline: (n,) scores of the baseline.
        margin: the difference that must be exceeded.
        bounds: lowest and highest possible score.
        ids: ids of the items, as :func:`paired_decision` takes them.
    """

    treatment: Any
    baseline: Any
    margin: float = -0.05
    bounds: tuple[float, float] = (0.0, 1.0)
    ids: Ids | None = None


class JointDecision(NamedTuple):
    """Several criteria at once.

    Attributes:
        verdict: "failed" if any criterion failed, "validated" if all are, else "inconclusive".
        criteria: the decision on each, by name.
    """

    verdict: Verdict
    criteria: dict[str, PairedDecision]


def half_width(
    num_items: int,
    *,
    alpha: float = 0.05,
    num_criteria: int = 1,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> float:
    """Half the width of Hoeffding's two-sided interval for a mean paired difference.

        t = W sqrt(ln(2 K / α) / (2 n)),   W = 2 (high - low)

    W is the range of a difference of two scores, and K criteria share α evenly (Bonferroni).

    Args:
        num_items: n.
        alpha: α.
        num_criteria: K.
        bounds: low and high.

    Returns:
        t, in score units.

    Raises:
        ValueError: an argument is out of range.

    Source: W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58,
    1963, Theorem 2.
    """
    _checks.number("num_items", num_items, 1)
    return _width(bounds) * sqrt(_logarithm(alpha, num_criteria) / (2 * num_items))


def required_items(
    margin: float = -0.05,
    *,
    difference: float = 0.0,
    alpha: float = 0.05,
    num_criteria: int = 1,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> int:
    """Items from which on an observed difference would decide: say so before training.

        n > W² ln(2 K / α) / (2 (difference - margin)²)

    Args:
        margin: the margin of the decision.
        difference: the mean difference that is expected to be seen.
        alpha: α.
        num_criteria: K.
        bounds: low and high of a score.

    Returns:
        The smallest n for which that difference lies outside the interval around the margin:
        validated where it is above the margin, failed where it is below.

    Raises:
        ValueError: the difference equals the margin, which no number of items decides.
    """
    gap = abs(difference - margin)
    if not (isfinite(gap) and gap > 0):
        raise ValueError(
            f"difference must differ from margin, or nothing decides; got {difference!r} "
            f"and {margin!r}"
        )
    exact = _width(bounds) ** 2 * _logarithm(alpha, num_criteria) / (2 * gap**2)
    count = max(1, floor(exact))
    options: dict[str, Any] = {"alpha": alpha, "num_criteria": num_criteria, "bounds": bounds}
    while half_width(count, **options) >= gap:  # strict, and not at the mercy of rounding
        count = max(count + 1, ceil(exact))
    return count


def paired_decision(
    treatment: Any,
    baseline: Any,
    *,
    margin: float = -0.05,
    alpha: float = 0.05,
    num_criteria: int = 1,
    bounds: tuple[float, float] = (0.0, 1.0),
    ids: Ids | None = None,
) -> PairedDecision:
    """Whether the treatment's mean score exceeds the baseline's by more than a margin.

        d̄ ± t,   d̄ = (1/n) Σ_k (treatment_k - baseline_k),   t as in ``half_width``

    The statement is about other items of the same kind and the two checkpoints at hand. What other
    seeds would have trained is not covered. Swapping the arms and the margin's sign swaps
    "validated" and "failed".

    Args:
        treatment: (n,) scores, such as 1 where an item was solved; booleans or numbers.
        baseline: (n,) scores of the same items.
        margin: -0.05 asks whether the treatment is at most 0.05 worse.
        alpha: chance of a wrong interval, over all criteria.
        num_criteria: criteria that are decided at once with this one.
        bounds: lowest and highest possible score. They set the width, and are never read from the
            data.
        ids: (ids of the treatment, ids of the baseline), to pair by; None where row k of both is
            the same item.

    Returns:
        A :class:`PairedDecision`.

    Raises:
        TypeError: scores are no numbers.
        ValueError: the items do not pair up, a score is missing or outside the bounds, an option is
            out of range. Missing evidence is no verdict, never "failed".
    """
    pairs = differences(treatment, baseline, bounds, ids)
    margin = _margin(margin)
    width = half_width(len(pairs), alpha=alpha, num_criteria=num_criteria, bounds=bounds)
    mean = float(pairs.mean())
    lower, upper = mean - width, mean + width
    return PairedDecision(
        verdict_of(lower, upper, margin),
        mean,
        lower,
        upper,
        width,
        margin,
        alpha,
        num_criteria,
        len(pairs),
        METHOD,
    )


def joint_decision(criteria: Mapping[str, Criterion], *, alpha: float = 0.05) -> JointDecision:
    """Decide several criteria at once; together they are wrong with a chance of at most α.

    Args:
        criteria: by name. Each interval is taken at α divided by their number.
        alpha: α.

    Returns:
        A :class:`JointDecision`.

    Raises:
        ValueError: there is no criterion, or one of them is refused; the message names it.
    """
    if not criteria:
        raise ValueError("criteria must hold at least one; got none")
    found = {}
    for name, criterion in criteria.items():
        try:
            found[name] = paired_decision(
                criterion.treatment,
                criterion.baseline,
                margin=criterion.margin,
                alpha=alpha,
                num_criteria=len(criteria),
                bounds=criterion.bounds,
                ids=criterion.ids,
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"criterion {name!r}: {error}") from None
    return JointDecision(overall([decision.verdict for decision in found.values()]), found)


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """One word for several: any failure is a failure, validated takes all."""
    if "failed" in verdicts:
        return "failed"
    return "validated" if set(verdicts) == {"validated"} else "inconclusive"


def verdict_of(lower: float, upper: float, margin: float) -> Verdict:
    """The verdict that an interval gives."""
    if lower > margin:
        return "validated"
    return "failed" if upper < margin else "inconclusive"


def _margin(margin: float) -> float:
    return float(_checks.number("margin", margin, float("-inf")))


def _width(bounds: tuple[float, float]) -> float:
    low, high = bounds
    if not (isfinite(low) and isfinite(high) and low < high):
        raise ValueError(f"bounds must be two finite numbers, low < high; got {bounds!r}")
    return 2 * (high - low)


def _logarithm(alpha: float, num_criteria: int) -> float:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1; got {alpha!r}")
    if isinstance(num_criteria, bool) or num_criteria != int(num_criteria) or num_criteria < 1:
        raise ValueError(f"num_criteria must be an integer from 1 on; got {num_criteria!r}")
    return log(2 * num_criteria / alpha)
