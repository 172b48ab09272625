"""What a grader is: one coroutine that reads a group and answers with the text of a verdict."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from advlib.grading._group import CandidateGroup


class Answer(NamedTuple):
    """A grader's answer.

    Attributes:
        text: the verdict as JSON; empty where the grader gave none.
        trace_id: names the grader's own transcript.
        model: what answered, None where unknown.
        input_tokens: of all requests of this answer, None where unknown.
        output_tokens: likewise.
        cost: in the provider's currency, None where it is not reported.
    """

    text: str
    trace_id: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


class Grader(Protocol):
    """Anything that can grade a group."""

    async def __call__(self, group: CandidateGroup) -> Answer:
        """Grade one group; an exception means that it could not be graded."""
        ...
