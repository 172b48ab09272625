"""Groups in, credit out: slots for graders, one deadline, and four reasons to do without them."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from advlib import _checks
from advlib.grading._endpoint import whole, within
from advlib.grading._grader import Answer, Grader, GraderError
from advlib.grading._group import CandidateGroup
from advlib.grading._group_credit import Statistics
from advlib.grading._outcome import (
    GradedGroup,
    Settings,
    bounded,
    described,
    outcome,
    to_be_graded,
)

_log = logging.getLogger(__name__)

_Call = Literal["stale", "closed"]


class _Waiting(NamedTuple):
    """A grading in progress: the step that makes it stale, and what calls it off."""

    limit: int | None
    call: asyncio.Future[_Call]


class _Work:
    """One grader's coroutine and the slot that it holds."""

    def __init__(self, grader: Grader, group: CandidateGroup, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._holds = False
        self._clock = asyncio.get_running_loop().time
        self.began = self._clock()
        self.had_slot: float | None = None
        self.task = asyncio.create_task(self._run(grader, group), name=f"grader of {group.id}")

    async def _run(self, grader: Grader, group: CandidateGroup) -> Answer:
        await self._slots.acquire()
        self._holds, self.had_slot = True, self._clock()
        try:
            return await grader(group)
        finally:
            self.release()

    def release(self) -> None:
        """Give the slot back now, also where the grader has not ended yet."""
        if self._holds:
            self._holds = False
            self._slots.release()

    def seconds(self) -> tuple[float, float]:
        """Seconds until there was a slot, and from there to now."""
        now = self._clock()
        had_slot = now if self.had_slot is None else self.had_slot
        return had_slot - self.began, now - had_slot


class Finalizer:
    """Grades groups within slots and deadlines; every group ends with credit.

    A group that waits for its slot or its grader falls back

    - "stale" once ``step ≥ policy_start + max_off_policy_steps + 1``, the last step whose batch
      can still take it: never where the group has no policy span or no maximum is set;
    - "timeout" after ``timeout`` seconds, which cover the wait for a slot and the grading;
    - "error" where the grader raised an exception, "invalid" where its verdict cannot be used.

    A grading that has finished wins over both deadlines, and stale over a timeout; what comes later
    is never applied. Cancelling :meth:`grade` is none of these: the slot is free at once, the
    grader's coroutine is cancelled and waited for, and the cancellation goes on. All times are the
    event loop's. One instance serves one event loop, and its methods are called from it.

    Args:
        grader: see :class:`Grader`; it stays the caller's to close.
        max_concurrent: graders at a time.
        timeout: seconds.
        max_off_policy_steps: how many steps behind a rollout may be trained on; None for any.
        f_min: least credit, in [0, 1].
        lambda_max: largest factor, at least 1.
        statistics: over "traces" or "candidates", as in :func:`advlib.gar`.
        grace: seconds that a grader which was called off may take to clean up. One that takes
            longer is abandoned: a warning is logged, and :attr:`abandoned` names its group.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        grader: Grader,
        *,
        max_concurrent: int = 32,
        timeout: float = 1800.0,
        max_off_policy_steps: int | None = None,
        f_min: float = 0.5,
        lambda_max: float = 1.5,
        statistics: Statistics = "traces",
        grace: float = 5.0,
    ) -> None:
        whole("max_concurrent", max_concurrent, least=1)
        within("timeout", timeout)
        within("grace", grace, least=0)
        if max_off_policy_steps is not None:
            whole("max_off_policy_steps", max_off_policy_steps, least=0)
        f_min = _checks.number("f_min", f_min, 0, 1)
        lambda_max = _checks.number("lambda_max", lambda_max, 1)
        _checks.one_of("statistics", statistics, ("traces", "candidates"))
        self.abandoned: list[str] = []
        self._grader = grader
        self._slots = asyncio.Semaphore(max_concurrent)
        self._timeout = timeout
        self._max_steps = max_off_policy_steps
        self._settings = Settings(f_min, lambda_max, statistics)
        self._grace = grace
        self._step: int | None = None
        self._waiting: set[_Waiting] = set()
        self._left: set[asyncio.Task[Answer]] = set()  # a task without a reference may vanish
        self._closed = False
        self._idle: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End every grading in progress with the reason "error", and take no more."""
        self._closed = True
        for waiting in self._waiting:
            _call_off(waiting, "closed")
        if self._waiting:  # each ends within its grace
            self._idle = asyncio.Event()
            await self._idle.wait()

    def advance(self, step: int) -> None:
        """Say which training step has begun; gradings that became stale end.

        Raises:
            ValueError: the step lies before one that was given earlier.
        """
        if self._step is not None and step < self._step:
            raise ValueError(f"step must not go back; was {self._step}, got {step}")
        self._step = step
        for waiting in self._waiting:
            if self._is_stale(waiting.limit):
                _call_off(waiting, "stale")

    async def grade(self, group: CandidateGroup) -> GradedGroup:
        """Grade one group, or find out why not.

        Only mixed groups are graded in rewards mode, and all with two or more candidates in
        advantages mode; the others return at once.

        Raises:
            RuntimeError: the finalizer is closed.
            ValueError: a reward is NaN or infinite.
        """
        if self._closed:
            raise RuntimeError("the finalizer is closed")
        settings = self._settings._asdict()
        if not to_be_graded(group):
            return outcome(group, **settings)
        limit = self._limit(group)
        if self._is_stale(limit):
            return outcome(group, reason="stale", detail=self._told("stale", limit), **settings)
        work = _Work(self._grader, group, self._slots)
        waiting = _Waiting(limit, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        try:
            await asyncio.wait(
                (work.task, waiting.call),
                timeout=self._timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not work.task.done():
                await asyncio.sleep(0)  # what ended in the same moment has ended
            waited, graded = work.seconds()
            times: dict[str, Any] = {"waiting": waited, "grading": graded}
            if work.task.done():
                return self._ended(group, work.task, times)
            called = waiting.call.result() if waiting.call.done() else "timeout"
            await self._call_off(work, group)
            detail = self._told(called, limit)
            reason = "error" if called == "closed" else called
            return outcome(group, reason=reason, detail=detail, **times, **settings)
        except asyncio.CancelledError:
            await self._call_off(work, group)
            raise
        finally:
            self._waiting.discard(waiting)
            waiting.call.cancel()
            if self._idle is not None and not self._waiting:
                self._idle.set()

    def _ended(
        self, group: CandidateGroup, task: asyncio.Task[Answer], times: dict[str, Any]
    ) -> GradedGroup:
        options = {**self._settings._asdict(), **times}
        if task.cancelled():  # from within: nobody called it off
            return outcome(group, reason="error", detail="the grader cancelled itself", **options)
        error = task.exception()
        if error is None:
            answer: object = task.result()  # whatever a grader returns in truth
            if isinstance(answer, Answer) and isinstance(answer.text, str):
                return outcome(group, answer, **options)
            detail = f"the grader must return an Answer with a text; got {type(answer).__name__}"
            return outcome(group, reason="error", detail=detail, **options)
        if not isinstance(error, Exception):
            raise error
        spent = error.answer if isinstance(error, GraderError) else None
        return outcome(group, spent, reason="error", detail=described(error), **options)

    async def _call_off(self, work: _Work, group: CandidateGroup) -> None:
        """Cancels a grader, frees its slot, and waits for its end as long as the grace lasts."""
        work.release()
        task = work.task
        if task not in self._left:  # a second cancellation would break its cleanup off
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            task.add_done_callback(_forget)
            task.cancel()
        await asyncio.wait((task,), timeout=self._grace)
        if not task.done():
            self.abandoned.append(group.id)
            _log.warning(
                "a grader ignores its cancellation and is abandoned: %s", bounded(group.id)
            )

    def _limit(self, group: CandidateGroup) -> int | None:
        if group.policy_start is None or self._max_steps is None:
            return None
        return group.policy_start + self._max_steps + 1

    def _is_stale(self, limit: int | None) -> bool:
        return limit is not None and self._step is not None and self._step >= limit

    def _told(self, called: str, limit: int | None) -> str:
        if called == "stale":
            return f"step {self._step} has begun, and step {limit} is the last to take the group"
        if called == "closed":
            return "the finalizer was closed"
        return f"no verdict within {self._timeout:g} s"


def _call_off(waiting: _Waiting, call: _Call) -> None:
    if not waiting.call.done():
        waiting.call.set_result(call)


def _forget(task: asyncio.Task[Answer]) -> None:
    """Reads an outcome that nobody wants, so that asyncio does not report it as overlooked."""
    if not task.cancelled():
        task.exception()
