"""How likely a decision comes out, from what the spec expects."""

from __future__ import annotations

from collections.abc import Iterator

from advlib import diagnostics
from advlib.experiments.spec import CriterionSpec, Spec

LOWEST_POWER = 0.2  # a decision that comes out less often than that is not worth its training


def low_power(criterion: CriterionSpec, spec: Spec) -> Iterator[str]:
    """Why a criterion is not worth its training; nothing where that is accepted."""
    if spec.accept_low_power:
        return
    power, needed = expected_power(criterion, spec), needed_items(criterion, spec)
    if power.validated >= LOWEST_POWER:
        return
    rule = spec.decision_rule
    more = "no number of items" if needed is None else f"about {needed:,} items"
    yield (
        f"criterion {criterion.id!r}: with {spec.eval.n_examples:,} items the interval is "
        f"±{power.half_width * reach(criterion):.4f}, and a true difference of "
        f"{rule.expected.difference:g} is validated against the margin {criterion.margin:g} in "
        f"{power.validated:.1%} of runs (discordance {rule.expected.discordance:g}); {more} would "
        "do. Change the design, or set accept_low_power to run it all the same"
    )


def expected_power(criterion: CriterionSpec, spec: Spec) -> diagnostics.Power:
    """Chances of the verdicts on a criterion, if the difference is what the spec expects."""
    rule, span = spec.decision_rule, reach(criterion)
    return diagnostics.decision_power(
        spec.eval.n_examples,
        difference=rule.expected.difference / span,
        discordance=rule.expected.discordance,
        margin=criterion.margin / span,
        alpha=rule.alpha,
        num_criteria=len(rule.criteria),
    )


def needed_items(criterion: CriterionSpec, spec: Spec) -> int | None:
    """Items from which on the expected difference, if seen, is validated; None if never."""
    rule = spec.decision_rule
    if rule.expected.difference <= criterion.margin:
        return None
    return diagnostics.required_items(
        criterion.margin,
        difference=rule.expected.difference,
        alpha=rule.alpha,
        num_criteria=len(rule.criteria),
        bounds=criterion.bounds,
    )


def reach(criterion: CriterionSpec) -> float:
    """Largest difference of two scores."""
    return criterion.bounds[1] - criterion.bounds[0]
