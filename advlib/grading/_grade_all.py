"""Many groups, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Any

from advlib.grading._finalize import Finalizer
from advlib.grading._grader import Grader
from advlib.grading._group import CandidateGroup
from advlib.grading._group_credit import Statistics
from advlib.grading._outcome import GradedGroup

_AHEAD = 2  # groups that are loaded and wait, so that a slot which becomes free is not idle


async def grade_all(
    groups: Iterable[CandidateGroup] | AsyncIterable[CandidateGroup],
    grader: Grader,
    *,
    max_concurrent: int = 32,
    timeout: float = 1800.0,
    step: int | None = None,
    max_off_policy_steps: int | None = None,
    f_min: float = 0.5,
    lambda_max: float = 1.5,
    statistics: Statistics = "traces",
    grace: float = 5.0,
) -> AsyncGenerator[GradedGroup]:
    """Grade groups as they come, in the order in which they are done.

    Groups are taken from the iterable only as there is room: at most ``max_concurrent`` and two
    more are held at a time, results that were not asked for yet included. However the iteration
    ends, graders are cancelled and waited for, and a generator of groups is closed; leave a loop
    early inside ``contextlib.aclosing``, since Python closes an asynchronous generator that was
    merely dropped at some later time.

    Args:
        groups: an iterable, which is advanced on the event loop, or an asynchronous one.
        grader: it stays the caller's to close.
        max_concurrent: graders at a time.
        timeout: seconds for a group's wait for a slot and its grading.
        step: the training step that has begun; None where nothing is stale.
        max_off_policy_steps: how many steps behind a rollout may be trained on; None for any.
        f_min: least credit, in [0, 1].
        lambda_max: largest factor, at least 1.
        statistics: over "traces" or "candidates", as in :func:`advlib.gar`.
        grace: seconds that a cancelled grader may take to clean up; see :class:`Finalizer`.

    Yields:
        Each group's outcome, once.

    Raises:
        ValueError: an option is out of range; a reward is NaN or infinite.
        Exception: whatever ``groups`` raises.
    """
    finalizer = Finalizer(
        grader,
        max_concurrent=max_concurrent,
        timeout=timeout,
        max_off_policy_steps=max_off_policy_steps,
        f_min=f_min,
        lambda_max=lambda_max,
        statistics=statistics,
        grace=grace,
    )
    if step is not None:
        finalizer.advance(step)
    source = _stream(groups)
    done: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
    tasks: set[asyncio.Task[Any]] = set()  # held: running, or done and not asked for yet

    def start(coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(done.put_nowait)
        return task

    pulling: asyncio.Task[Any] | None = None
    ended = False
    try:
        while True:
            if pulling is None and not ended and len(tasks) < max_concurrent + _AHEAD:
                pulling = start(anext(source, None))
            if not tasks:
                return
            task = await done.get()
            tasks.discard(task)
            if task is not pulling:
                yield task.result()
                continue
            pulling = None
            group = task.result()
            if group is None:
                ended = True
            else:
                start(finalizer.grade(group))
                del group, task  # a group that is done must not be held by this loop
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await finalizer.aclose()
        await source.aclose()


async def _stream(
    groups: Iterable[CandidateGroup] | AsyncIterable[CandidateGroup],
) -> AsyncGenerator[CandidateGroup]:
    if isinstance(groups, AsyncIterable):
        iterator = aiter(groups)
        try:
            async for group in iterator:
                yield group
        finally:
            if hasattr(iterator, "aclose"):
                await iterator.aclose()
        return
    plain = iter(groups)
    with contextlib.ExitStack() as stack:
        if hasattr(plain, "close"):
            stack.callback(plain.close)
        for group in plain:
            yield group
