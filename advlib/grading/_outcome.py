"""How the grading of one group ended: from an answer, or from none, to credit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from advlib.grading._check import check_verdict
from advlib.grading._citations import check_citations
from advlib.grading._credit import TraceCredit, trace_credit
from advlib.grading._grader import Answer
from advlib.grading._group import CandidateGroup, Mode, Reason
from advlib.grading._group_credit import Statistics
from advlib.grading._parse import parse_verdict
from advlib.grading._verdict import InvalidVerdict, Verdict

_LONGEST_DETAIL = 400


class GradedGroup(NamedTuple):
    """A group with its credit, whatever happened to its grading.

    Attributes:
        group: the group's id.
        mode: "rewards" or "advantages".
        graded: a verdict decided about the credit.
        credit: of every trainable trace, by its id.
        labels: each candidate's label to the id of the trace that represents it.
        passing: labels of the candidates that were to be ranked.
        fallback_reason: why there is no verdict where one was wanted: "stale", "timeout", "error"
            or "invalid"; None where the group was graded or there was nothing to grade.
        detail: what happened, in one line of bounded length; untrusted text. None unless it fell
            back.
        verdict: after the citation check; None unless graded.
        claimed: as the grader gave it; None unless graded.
        answer: what the grader gave, or what it took before it failed; None where unknown.
        waiting: seconds until there was a slot.
        grading: seconds from there to the end.
    """

    group: str
    mode: Mode
    graded: bool
    credit: dict[str, TraceCredit]
    labels: dict[str, str]
    passing: tuple[str, ...]
    fallback_reason: Reason | None = None
    detail: str | None = None
    verdict: Verdict | None = None
    claimed: Verdict | None = None
    answer: Answer | None = None
    waiting: float = 0.0
    grading: float = 0.0


class Settings(NamedTuple):
    """What credit depends on beside the group and the verdict."""

    f_min: float = 0.5
    lambda_max: float = 1.5
    statistics: Statistics = "traces"


def to_be_graded(group: CandidateGroup) -> bool:
    """Whether a verdict can change anything: mixed in rewards mode, two or more in the other."""
    return len(group.candidates) >= 2 and (group.mode == "advantages" or group.mixed)


def outcome(
    group: CandidateGroup,
    answer: Answer | None = None,
    *,
    reason: Reason | None = None,
    detail: str | None = None,
    f_min: float = 0.5,
    lambda_max: float = 1.5,
    statistics: Statistics = "traces",
    waiting: float = 0.0,
    grading: float = 0.0,
) -> GradedGroup:
    """A group's credit from its grader's answer, or what it falls back to.

    The order: is there anything to grade; the text is parsed; its structure is checked; citations
    are checked; credit is computed. A step that fails leaves the reason "invalid", and "error"
    where it is not the verdict's fault. The fallback is the group mean of the original rewards in
    rewards mode, and zeros in advantages mode: no hack is dropped without a verdict. Where
    rewards lie so far apart that float64 does not hold that either, all traces get 0, and the
    reason is "error" if there is no other.

    Args:
        group: the candidates, as the grader was given them.
        answer: the grader's; with a ``reason``, only what it took.
        reason: why there is no verdict; None where ``answer`` holds one.
        detail: what happened; made one line and cut.
        f_min: least credit, in [0, 1].
        lambda_max: largest factor, at least 1.
        statistics: over "traces" or "candidates", as in :func:`advlib.gar`.
        waiting: seconds until there was a slot.
        grading: seconds from there to the end.

    Raises:
        ValueError: a group to be graded has neither an answer nor a reason; an option is out of
            range; a reward is NaN or infinite.

    Source: groupwise advantage redistribution; fallbacks and deadlines.
    """
    settings = Settings(f_min, lambda_max, statistics)
    result = GradedGroup(
        group=group.id,
        mode=group.mode,
        graded=False,
        credit={},
        labels={candidate.label: candidate.trace for candidate in group.candidates},
        passing=tuple(group.passing),
        answer=answer,
        waiting=waiting,
        grading=grading,
    )
    if not to_be_graded(group):
        return _without_verdict(result, group, settings)
    if answer is None and reason is None:
        raise ValueError(f"group {group.id!r} is to be graded: an answer or a reason is wanted")
    if answer is not None and reason is None:
        try:
            claimed, verdict = _verdicts(answer.text, group)
            credit = trace_credit(verdict, group, **settings._asdict())
            return result._replace(graded=True, credit=credit, verdict=verdict, claimed=claimed)
        except InvalidVerdict as error:
            reason, detail = "invalid", str(error)
        except Exception as error:  # whatever happens, the group ends with credit
            reason, detail = "error", described(error)
    return _without_verdict(
        result._replace(fallback_reason=reason, detail=detail and bounded(detail)), group, settings
    )


def _without_verdict(result: GradedGroup, group: CandidateGroup, settings: Settings) -> GradedGroup:
    """The group's credit as it is without a verdict; zeros where even that cannot be computed."""
    try:
        return result._replace(credit=trace_credit(None, group, **settings._asdict()))
    except OverflowError as error:
        told = f"{result.detail}; {error}" if result.detail else str(error)
        return result._replace(
            credit={
                trace.id: TraceCredit(0.0, candidate.label)
                for candidate in group.candidates
                for trace in candidate.traces
            },
            fallback_reason=result.fallback_reason or "error",
            detail=bounded(told),
        )


def policy_texts(group: CandidateGroup) -> Mapping[str, list[str]]:
    """What each candidate's policy wrote, turn by turn: all that can be cited."""
    return {c.label: [turn.policy for turn in c.turns] for c in group.candidates}


def described(error: BaseException) -> str:
    """An exception in one line: its words where it is one of ours, else with its type."""
    try:
        words = str(error)
    except Exception:  # an exception's own formatting may fail
        words = ""
    name = type(error).__name__
    if name == "GraderError" and words:
        return bounded(words)
    return bounded(f"{name}: {words}" if words else name)


def bounded(text: str) -> str:
    """Text as one line of at most 400 characters."""
    line = " ".join(text[: 4 * _LONGEST_DETAIL].split())
    return line if len(line) <= _LONGEST_DETAIL else line[: _LONGEST_DETAIL - 3] + "..."


def _verdicts(text: str, group: CandidateGroup) -> tuple[Verdict, Verdict]:
    if not text.strip():
        raise InvalidVerdict("the grader gave no verdict")
    claimed = parse_verdict(text)
    check_verdict(claimed, group.labels, group.passing, group.mode)
    return claimed, check_citations(claimed, policy_texts(group))
