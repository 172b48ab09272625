"""Asking the grader: group after group, each result in the journal before it counts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, NamedTuple

import msgspec

from advlib import grading
from advlib.cli._grading_journal import Entry, Journal, Usage
from advlib.cli._grading_plan import Plan, digest
from advlib.cli._show import count
from advlib.grading import CandidateGroup, GradedGroup, Grader
from advlib.grading._privileged import censored


class Options(NamedTuple):
    """How the grader is asked; see the options of ``advlib grade``."""

    max_concurrent: int
    timeout: float
    step: int | None
    max_off_policy_steps: int | None
    stop_after: int
    retry: Collection[str]
    rename: bool  # answers get names that follow from them: a server's are new each time


class Stopped(NamedTuple):
    """Why a run gave up: the grader failed for this many groups in a row, the last time so."""

    errors: int
    last: str


class Pass:
    """One run over the groups that the journal does not know yet.

    Attributes:
        stopped: why it ended early, None where it did not.
        counts: groups by how they ended: "graded", "nothing to grade", "in the journal", or a
            fallback's reason.
        tokens: input and output tokens of this run's answers.
        cost: of this run's answers, None where none reported one.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        options: Options,
        *,
        progress: Callable[[Pass], None] = lambda run: None,
    ) -> None:
        self.stopped: Stopped | None = None
        self.counts: Counter[str] = Counter()
        self.tokens = 0
        self.cost: float | None = None
        self._plan, self._journal, self._options = plan, journal, options
        self._progress = progress
        self._open: dict[str, Entry] = {}
        self._held: list[Entry] = []  # errors in a row, until something else shows that they pass
        self._answered = False

    async def run(self, grader: Grader) -> None:
        """Grade what is to be graded; give up where the grader fails again and again, or always."""
        options = self._options
        results = grading.grade_all(
            self._waiting(),
            grader,
            max_concurrent=options.max_concurrent,
            timeout=options.timeout,
            step=options.step,
            max_off_policy_steps=options.max_off_policy_steps,
            **self._plan.credit,
        )
        async with contextlib.aclosing(results):
            async for graded in results:
                self._take(graded)
                if options.stop_after and len(self._held) >= options.stop_after:
                    break
        failed = len(self._held)
        if failed and options.stop_after and (failed >= options.stop_after or not self._answered):
            self.stopped = Stopped(failed, self._held[-1].detail or "no reason was given")
        else:
            self._release()

    def entry(self, group: CandidateGroup) -> Entry | None:
        """How a group ended, None where there was nothing to grade.

        Where the run gave up, that is by the journal, or as a failure that is in no journal.
        """
        entry = self._journal.get(group.id)
        if self.stopped is None or not grading.to_be_graded(group):
            return entry
        asked = self._asked(group)
        if entry is not None and entry.digest == asked.digest:
            return entry
        held = {one.group: one for one in self._held}
        detail = f"not asked, after {count(self.stopped.errors, 'error')} of the grader in a row"
        return held.get(
            group.id, msgspec.structs.replace(asked, fallback_reason="error", detail=detail)
        )

    @property
    def done(self) -> int:
        """Groups that are finished."""
        return self.counts.total()

    async def _waiting(self) -> AsyncIterator[CandidateGroup]:
        """The groups that need an answer; the others are counted on the way."""
        for group, _ in self._plan.groups():
            await asyncio.sleep(0)  # many may need none, and graders and Ctrl-C wait meanwhile
            if not grading.to_be_graded(group):
                self._count("nothing to grade")
                continue
            asked, entry = self._asked(group), self._journal.get(group.id)
            if entry is not None and entry.digest == asked.digest and not self._again(group, entry):
                self._count("in the journal")
            else:
                self._open[group.id] = asked
                yield group

    @staticmethod
    def _asked(group: CandidateGroup) -> Entry:
        labels = {candidate.label: candidate.trace for candidate in group.candidates}
        return Entry(group.id, digest(group), labels)

    def _again(self, group: CandidateGroup, entry: Entry) -> bool:
        """Whether an earlier fallback is to be tried once more."""
        retry = self._options.retry
        if not retry:
            return False
        if entry.fallback_reason is not None:
            return entry.fallback_reason in retry
        return "invalid" in retry and not _is_usable(group, entry)

    def _take(self, graded: GradedGroup) -> None:
        entry = finished(
            self._open.pop(graded.group), graded, self._plan.privileged(graded.group).values()
        )
        if self._options.rename and entry.trace_id is not None:
            entry = msgspec.structs.replace(entry, trace_id=_name(entry))
        if entry.fallback_reason == "error" and not entry.text:
            self._held.append(entry)
        else:
            self._answered = True
            self._release()
            self._journal.add(entry)
        self.tokens += (entry.usage.input_tokens or 0) + (entry.usage.output_tokens or 0)
        if entry.usage.cost is not None:
            self.cost = (self.cost or 0.0) + entry.usage.cost
        self._count(graded.fallback_reason or "graded")

    def _release(self) -> None:
        for entry in self._held:
            self._journal.add(entry)
        self._held.clear()

    def _count(self, how: str) -> None:
        self.counts[how] += 1
        self._progress(self)


def finished(entry: Entry, graded: GradedGroup, secrets: Collection[str]) -> Entry:
    """A group's entry with what came of it.

    A verdict that cannot be used is no reason here: that is found again from its text. The detail
    goes without what it repeats of ``secrets``: a server may echo its request.
    """
    answer = graded.answer
    used = Usage()
    if answer is not None:
        used = Usage(answer.input_tokens, answer.output_tokens, answer.cost)
    from_text = answer is not None and graded.fallback_reason == "invalid"
    changes: dict[str, Any] = {
        "text": answer.text if answer else "",
        "trace_id": answer.trace_id if answer else None,
        "model": answer.model if answer else None,
        "usage": used,
        "fallback_reason": None if from_text else graded.fallback_reason,
        "detail": None if from_text or not graded.detail else censored(graded.detail, secrets),
        "waiting": round(graded.waiting, 3),
        "grading": round(graded.grading, 3),
    }
    return msgspec.structs.replace(entry, **changes)


def _name(entry: Entry) -> str:
    return hashlib.sha256(f"{entry.digest} {entry.text!a}".encode()).hexdigest()[:32]


def _is_usable(group: CandidateGroup, entry: Entry) -> bool:
    answer = grading.Answer(entry.text, entry.trace_id or "")
    return grading.outcome(group, answer).graded
