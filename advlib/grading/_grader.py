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
        attempts: requests that this answer took, None where unknown.
        latency: seconds from the first request to the end, None where unknown.
    """

    text: str
    trace_id: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    attempts: int | None = None
    latency: float | None = None


class GraderError(RuntimeError):
    """A group that could not be graded, and why.

    Attributes:
        status: the HTTP status where a server refused, else None.
        answer: what the requests took all the same, with an empty text; None where unknown.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answer: Answer | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer


class Grader(Protocol):
    """Anything that can grade a group."""

    async def __call__(self, group: CandidateGroup) -> Answer:
        """Grade one group; an exception means that it could not be graded."""
        ...
