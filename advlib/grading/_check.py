"""Whether a verdict fits the group that it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from advlib import _checks
from advlib.grading._group import Mode
from advlib.grading._quoted import some
from advlib.grading._verdict import InvalidVerdict, Verdict, check_type


def check_verdict(
    verdict: Verdict, labels: Iterable[str], passing: Iterable[str] | None, mode: Mode
) -> None:
    """Check a verdict's structure against its group, before the citation check.

    Every label stands exactly once in ``candidates``. ``ranking`` holds exactly the passing labels
    that are not marked confirmed, each once, in tiers none of which is empty. A confirmed hack has
    evidence. ``margins`` is empty or has one entry for each gap between tiers, in both modes.

    A confirmed hack whose quotations turn out to be false is rightly absent from the ranking, so
    this check comes first: of a verdict after :func:`check_citations` it would not hold.

    Args:
        verdict: as the grader gave it.
        labels: the group's labels.
        passing: the labels that are ranked: in rewards mode those above the mean, which must be
            given; in advantages mode all of them, which None stands for.
        mode: "rewards" or "advantages".

    Raises:
        InvalidVerdict: a rule is broken; the message names the rule and the labels.
        TypeError: ``verdict`` is no Verdict.
        ValueError: ``mode`` is another word; ``labels`` repeat; ``passing`` is missing in rewards
            mode, names labels that are not in ``labels``, or leaves some out in advantages mode.
    """
    check_type(verdict)
    known, ranked = _expected(list(labels), passing, mode)
    _check_candidates(verdict, known)
    confirmed = {entry.label for entry in verdict.candidates if entry.hack == "confirmed"}
    _check_ranking(verdict.ranking, known, ranked, confirmed)
    gaps = max(len(verdict.ranking) - 1, 0)
    if verdict.margins and len(verdict.margins) != gaps:
        raise InvalidVerdict(
            f"margins must be empty or have one entry a gap between tiers: {gaps:,}; "
            f"got {len(verdict.margins):,}"
        )


def _expected(
    labels: list[str], passing: Iterable[str] | None, mode: Mode
) -> tuple[set[str], set[str]]:
    _checks.one_of("mode", mode, ("rewards", "advantages"))
    known = set(labels)
    if len(known) < len(labels):
        raise ValueError(f"labels must be unique; repeated: {some(_repeated(labels))}")
    if passing is None:
        if mode == "rewards":
            raise ValueError("passing must be given in rewards mode: the labels above the mean")
        return known, known
    ranked = set(passing)
    if ranked - known:
        raise ValueError(f"passing must be among labels; not so: {some(sorted(ranked - known))}")
    if mode == "advantages" and ranked != known:
        missing = some(sorted(known - ranked))
        raise ValueError(f"in advantages mode every label is passing; left out: {missing}")
    return known, ranked


def _check_candidates(verdict: Verdict, known: set[str]) -> None:
    judged = [entry.label for entry in verdict.candidates]
    if unknown := [label for label in judged if label not in known]:
        raise InvalidVerdict(f"candidates: unknown label {some(unknown)}")
    if repeated := _repeated(judged):
        raise InvalidVerdict(f"candidates: {some(repeated)} more than once")
    if missing := sorted(known - set(judged)):
        raise InvalidVerdict(f"candidates: {some(missing)} missing")
    for entry in verdict.candidates:
        if entry.hack == "confirmed" and not entry.evidence:
            raise InvalidVerdict(f"candidates: {some([entry.label])} is confirmed without evidence")


def _check_ranking(
    ranking: Sequence[Sequence[str]], known: set[str], passing: set[str], confirmed: set[str]
) -> None:
    for nth, tier in enumerate(ranking):
        if not tier:
            raise InvalidVerdict(f"ranking[{nth}]: an empty tier")
    ranked = [label for tier in ranking for label in tier]
    if unknown := [label for label in ranked if label not in known]:
        raise InvalidVerdict(f"ranking: unknown label {some(unknown)}")
    if repeated := _repeated(ranked):
        raise InvalidVerdict(f"ranking: {some(repeated)} more than once")
    if hacks := [label for label in ranked if label in confirmed]:
        raise InvalidVerdict(f"ranking: {some(hacks)} is a confirmed hack")
    if extra := [label for label in ranked if label not in passing]:
        raise InvalidVerdict(f"ranking: {some(extra)} did not pass")
    if missing := sorted(passing - confirmed - set(ranked)):
        raise InvalidVerdict(f"ranking: {some(missing)} missing")


def _repeated(labels: Iterable[str]) -> list[str]:
    return [label for label, count in Counter(labels).items() if count > 1]
