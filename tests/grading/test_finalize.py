"""Slots, deadlines and reasons on a virtual clock; what is given to whom, and what is left over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from advlib.grading import (
    Answer,
    CandidateGroup,
    Finalizer,
    GradedGroup,
    GraderError,
    ScriptedGrader,
    grade_all,
    outcome,
)
from tests.grading import clock, small

RANKING = [["c01"], ["c02"], ["c03"]]
GRADED = [1 / 3, 0.25, 1 / 6, -0.75]  # rewards 1, 1, 1, 0 in that order: f = 1, .75, .5; λ = 4/3
PLAIN = [0.25, 0.25, 0.25, -0.75]


def answer(text: str | None = None) -> Answer:
    return Answer(small.text(small.group(), RANKING) if text is None else text, "t")


class Slow:
    """Answers after so many seconds, and keeps count."""

    def __init__(self, seconds: float, text: str | None = None, *, cleanup: float = 0.0) -> None:
        self.seconds, self.text, self.cleanup = seconds, text, cleanup
        self.running = self.most = self.calls = self.cleaned = 0

    async def __call__(self, group: CandidateGroup) -> Answer:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            if self.cleanup:
                await asyncio.sleep(self.cleanup)
            self.cleaned += 1
            self.running -= 1
        return answer(self.text)


def grade(grader: Any, group: CandidateGroup | None = None, **options: Any) -> GradedGroup:
    async def main() -> GradedGroup:
        async with Finalizer(grader, **options) as finalizer:
            return await finalizer.grade(group or small.group())

    return clock.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


# What comes of an answer


def test_a_verdict_decides_about_the_credit() -> None:
    graded = grade(Slow(3.0))
    assert graded.graded
    assert graded.fallback_reason is None
    assert graded.detail is None
    assert small.advantages(graded) == pytest.approx(GRADED, abs=1e-12)
    assert graded.verdict == graded.claimed
    assert graded.answer is not None
    assert (graded.waiting, graded.grading) == (0.0, 3.0)
    assert graded.labels == {f"c0{n + 1}": f"g-{n}" for n in range(4)}
    assert graded.passing == ("c01", "c02", "c03")


# Nine at -1.7e308: what lies above their mean is beyond every float64.
APART = [1.7e308, *[-1.7e308] * 9]


@pytest.mark.parametrize("reason", ["error", "timeout"])
def test_a_group_whose_credit_does_not_fit_ends_with_zeros_and_a_reason(reason: str) -> None:
    group = small.group(APART)
    told = small.text(group, [["c01"]])
    graded = outcome(group, answer(told)) if reason == "error" else outcome(group, reason="timeout")
    assert (graded.graded, graded.fallback_reason) == (False, reason)
    assert "rewards from -1.7e+308 to 1.7e+308 lie too far apart" in (graded.detail or "")
    assert small.advantages(graded) == [0.0] * 10


def test_it_ends_so_without_a_grader_too() -> None:
    graded = grade(Slow(0.0), small.group(APART)._replace(mixed=False))
    assert (graded.fallback_reason, small.advantages(graded)) == ("error", [0.0] * 10)


def test_redistributed_credit_that_does_not_fit_falls_back_to_what_does() -> None:
    group = small.group([1.7e308] * 2 + [0.0] * 98)
    graded = outcome(group, answer(small.text(group, [["c01"], ["c02"]])))  # 4/3 of 1.666e308
    assert (graded.graded, graded.fallback_reason) == (False, "error")
    assert small.advantages(graded)[:2] == pytest.approx([1.666e308] * 2, rel=1e-12)


def test_every_trace_of_a_candidate_gets_credit() -> None:
    group = small.group(helpers={0: 2})
    assert set(grade(Slow(1.0), group).credit) == {"g-0", "g-0+0", "g-0+1", "g-1", "g-2", "g-3"}


def test_structure_is_checked_before_citations() -> None:
    # c03 is rightly absent from the ranking, although its citation then fails.
    told = small.text(
        small.group(), RANKING[:2], hacks={"c03": "confirmed"}, quote="never written by anybody"
    )
    graded = grade(Slow(0.0, told))
    assert graded.graded
    assert graded.claimed is not None
    assert graded.verdict is not None
    assert [c.hack for c in graded.claimed.candidates] == ["none", "none", "confirmed", "none"]
    assert [c.hack for c in graded.verdict.candidates] == ["none", "none", "suspected", "none"]
    assert small.advantages(graded) == pytest.approx([1 / 3, 1 / 6, 0.25, -0.75], abs=1e-12)


def test_a_tool_result_is_no_evidence() -> None:
    told = small.text(
        small.group(), RANKING[:2], hacks={"c03": "confirmed"}, quote="12 passed in 0.10s"
    )
    verdict = grade(Slow(0.0, told)).verdict
    assert verdict is not None
    assert verdict.candidates[2].hack == "suspected"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "gave no verdict"),
        (" \n", "gave no verdict"),
        ("{", "not JSON"),
        (small.text(["c01", "c02", "c03"], RANKING), "c04"),
        (small.text(small.group(), [["c01"], [], ["c02", "c03"]]), "empty tier"),
        (small.text([*small.group().labels, "c09"], RANKING), "c09"),
        ("[" * 100_000, "nested"),
    ],
)
def test_what_is_no_verdict_is_invalid(text: str, words: str) -> None:
    graded = grade(Slow(2.0, text))
    assert not graded.graded
    assert graded.fallback_reason == "invalid"
    assert words in (graded.detail or "")
    assert graded.verdict is graded.claimed is None
    assert graded.answer is not None  # what it took is still known
    assert small.advantages(graded) == pytest.approx(PLAIN, abs=1e-12)


def test_no_hack_drops_without_a_verdict() -> None:
    # The verdict confirms a hack and is invalid for another reason.
    told = small.text(small.group(), [["c01"]], hacks={"c03": "confirmed"})
    graded = grade(Slow(0.0, told))
    assert graded.fallback_reason == "invalid"
    assert small.advantages(graded) == pytest.approx(PLAIN, abs=1e-12)


def test_in_advantages_mode_the_fallback_is_zero() -> None:
    graded = grade(Slow(0.0, "{"), small.group(mode="advantages"))
    assert graded.fallback_reason == "invalid"
    assert small.advantages(graded) == [0.0] * 4


def test_an_exception_is_an_error_in_one_line() -> None:
    def fail(group: CandidateGroup) -> str:
        raise OSError("the line\nwas lost\u2028 " + "x" * 5000)

    graded = grade(ScriptedGrader(fail))
    assert graded.fallback_reason == "error"
    assert graded.detail is not None
    assert graded.detail.startswith("OSError: the line was lost xxx")
    assert len(graded.detail) <= 400
    assert graded.answer is None
    assert small.advantages(graded) == pytest.approx(PLAIN, abs=1e-12)


def test_what_a_failed_grader_took_is_known() -> None:
    def fail(group: CandidateGroup) -> str:
        raise GraderError("cut", answer=Answer("", "t", input_tokens=7))

    graded = grade(ScriptedGrader(fail))
    assert graded.detail == "cut"
    assert graded.answer is not None
    assert graded.answer.input_tokens == 7


def test_an_exception_that_cannot_be_shown_is_an_error() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def fail(group: CandidateGroup) -> str:
        raise MuteError

    assert grade(ScriptedGrader(fail)).detail == "MuteError"


@pytest.mark.parametrize("given", [None, "text", Answer(None, "t")])  # type: ignore[arg-type]
def test_what_is_no_answer_is_an_error(given: Any) -> None:
    async def grader(group: CandidateGroup) -> Any:
        return given

    graded = grade(grader)
    assert graded.fallback_reason == "error"
    assert "Answer" in (graded.detail or "")


def test_a_grader_that_cancels_itself_is_an_error() -> None:
    async def grader(group: CandidateGroup) -> Answer:
        raise asyncio.CancelledError

    graded = grade(grader)
    assert graded.fallback_reason == "error"
    assert graded.detail == "the grader cancelled itself"


# What is graded at all


@pytest.mark.parametrize(
    ("group", "calls"),
    [
        (small.group(), 1),
        (small.group([1.0, 1.0, 1.0]), 0),
        (small.group([1.0]), 0),
        (small.group([]), 0),
        (small.group([1.0, 1.0], mode="advantages"), 1),
        (small.group([1.0], mode="advantages"), 0),
    ],
    ids=["mixed", "equal", "alone", "none", "advantages", "advantages alone"],
)
def test_what_is_graded(group: CandidateGroup, calls: int) -> None:
    grader = Slow(1.0, small.text(group, [group.passing]))
    graded = grade(grader, group)
    assert grader.calls == calls
    assert graded.graded is bool(calls)
    assert graded.fallback_reason is None
    assert set(graded.credit) == {f"g-{n}" for n in range(len(group.candidates))}
    if not calls:
        assert small.advantages(graded) == [0.0] * len(group.candidates)
        assert (graded.waiting, graded.grading) == (0.0, 0.0)


# Deadlines


def test_the_deadline_covers_the_wait_for_a_slot_and_the_grading() -> None:
    grader = Slow(1000.0)

    async def main() -> tuple[list[GradedGroup], float]:
        async with Finalizer(grader, max_concurrent=1) as finalizer:
            both = await asyncio.gather(*(finalizer.grade(small.group()) for _ in range(2)))
            return both, now()

    (first, second), ended = clock.run(main())
    assert first.graded
    assert second.fallback_reason == "timeout"
    assert "1800 s" in (second.detail or "")
    assert (second.waiting, second.grading) == (1000.0, 800.0)
    assert ended == 1800.0
    assert grader.cleaned == 2
    assert small.advantages(second) == pytest.approx(PLAIN, abs=1e-12)


def test_a_group_may_time_out_before_it_has_a_slot() -> None:
    grader = Slow(5000.0)

    async def main() -> list[GradedGroup]:
        async with Finalizer(grader, max_concurrent=1, timeout=100.0) as finalizer:
            return await asyncio.gather(*(finalizer.grade(small.group()) for _ in range(2)))

    graded = clock.run(main())
    assert [g.fallback_reason for g in graded] == ["timeout", "timeout"]
    assert (graded[1].waiting, graded[1].grading) == (100.0, 0.0)
    assert grader.calls == 1


def test_slots_bound_what_runs_and_serve_in_order() -> None:
    grader = Slow(10.0)

    async def main() -> list[GradedGroup]:
        async with Finalizer(grader, max_concurrent=3) as finalizer:
            return await asyncio.gather(*(finalizer.grade(small.group()) for _ in range(7)))

    graded = clock.run(main())
    assert grader.most == 3
    assert [g.waiting for g in graded] == [0.0] * 3 + [10.0] * 3 + [20.0]
    assert all(g.graded for g in graded)


@pytest.mark.parametrize(
    ("start", "limit", "step", "reason"),
    [
        (5, 8, 13, None),
        (5, 8, 14, "stale"),  # reached, not passed
        (5, 8, 15, "stale"),
        (5, 0, 6, "stale"),
        (5, 0, 5, None),
        (None, 8, 10**9, None),
        (5, None, 10**9, None),
    ],
)
def test_a_group_is_stale_once_the_step_reaches_its_limit(
    start: int | None, limit: int | None, step: int, reason: str | None
) -> None:
    grader = Slow(50.0)

    async def main(early: bool) -> GradedGroup:
        async with Finalizer(grader, max_off_policy_steps=limit) as finalizer:
            if early:
                finalizer.advance(step)
            else:
                asyncio.get_running_loop().call_later(20.0, finalizer.advance, step)
            return await finalizer.grade(small.group(policy_start=start))

    at_once, woken = clock.run(main(True)), clock.run(main(False))
    assert at_once.fallback_reason == woken.fallback_reason == reason
    if reason:
        assert grader.calls == 1  # none at all where the group was stale from the start
        assert (at_once.waiting, at_once.grading) == (0.0, 0.0)
        assert woken.grading == 20.0
        assert f"step {step} has begun" in (woken.detail or "")


def test_a_group_in_the_queue_becomes_stale_too() -> None:
    async def main() -> list[GradedGroup]:
        async with Finalizer(Slow(50.0), max_concurrent=1, max_off_policy_steps=1) as finalizer:
            asyncio.get_running_loop().call_later(20.0, finalizer.advance, 7)
            groups = small.group(policy_start=9), small.group(policy_start=5)
            return await asyncio.gather(*map(finalizer.grade, groups))

    graded = clock.run(main())
    assert [g.fallback_reason for g in graded] == [None, "stale"]
    assert (graded[1].waiting, graded[1].grading) == (20.0, 0.0)


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_grading_that_ends_in_the_moment_of_its_deadlines_counts(order: str) -> None:
    async def main() -> GradedGroup:
        loop = asyncio.get_running_loop()
        async with Finalizer(Slow(1800.0), max_off_policy_steps=0) as finalizer:
            if order == "before":
                loop.call_later(1800.0, finalizer.advance, 6)
            task = asyncio.create_task(finalizer.grade(small.group(policy_start=5)))
            await asyncio.sleep(0)
            if order == "after":
                loop.call_later(1800.0, finalizer.advance, 6)
            return await task

    assert clock.run(main()).graded


@pytest.mark.parametrize("order", ["before", "after"])
def test_stale_wins_over_a_timeout_in_the_same_moment(order: str) -> None:
    async def main() -> GradedGroup:
        loop = asyncio.get_running_loop()
        async with Finalizer(Slow(9999.0), max_off_policy_steps=0) as finalizer:
            if order == "before":
                loop.call_later(1800.0, finalizer.advance, 6)
            task = asyncio.create_task(finalizer.grade(small.group(policy_start=5)))
            await asyncio.sleep(0)
            if order == "after":
                loop.call_later(1800.0, finalizer.advance, 6)
            return await task

    assert clock.run(main()).fallback_reason == "stale"


def test_a_late_verdict_is_never_applied() -> None:
    async def grader(group: CandidateGroup) -> Answer:
        try:
            await asyncio.sleep(9999.0)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)  # within the grace, and then it answers after all
        return answer()

    graded = grade(grader)
    assert graded.fallback_reason == "timeout"
    assert graded.answer is None
    assert graded.grading == 1800.0
    assert small.advantages(graded) == pytest.approx(PLAIN, abs=1e-12)


def test_steps_do_not_go_back() -> None:
    async def main() -> None:
        finalizer = Finalizer(Slow(1.0))
        finalizer.advance(4)
        finalizer.advance(4)
        with pytest.raises(ValueError, match="must not go back; was 4, got 3"):
            finalizer.advance(3)

    clock.run(main())


# Cancellation


def test_cancellation_propagates_and_frees_the_slot_at_once() -> None:
    grader = Slow(100.0, cleanup=3.0)
    times: dict[str, float] = {}

    async def main() -> GradedGroup:
        async with Finalizer(grader, max_concurrent=1) as finalizer:
            first = asyncio.create_task(finalizer.grade(small.group()))
            second = asyncio.create_task(finalizer.grade(small.group()))
            await asyncio.sleep(10.0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            times["cancelled"] = now()
            return await second

    graded = clock.run(main())
    assert graded.graded
    assert graded.waiting == 10.0  # it did not wait for the first one's cleanup
    assert times["cancelled"] == 13.0  # the cancelled call did
    assert grader.cleaned == 2


def test_cancellation_while_waiting_for_a_slot_loses_no_slot_and_makes_none() -> None:
    async def main() -> list[GradedGroup]:
        async with Finalizer(Slow(10.0), max_concurrent=1) as finalizer:
            tasks = [asyncio.create_task(finalizer.grade(small.group())) for _ in range(4)]
            await asyncio.sleep(5.0)
            tasks[1].cancel()
            await asyncio.sleep(5.0)  # in this moment the slot is handed on
            tasks[2].cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(d, asyncio.CancelledError) for d in done] == [
                False, True, True, False,
            ]  # fmt: skip
            return await asyncio.gather(*(finalizer.grade(small.group()) for _ in range(3)))

    graded = clock.run(main())
    assert all(g.graded for g in graded)
    assert [g.waiting for g in graded] == [0.0, 10.0, 20.0]


def test_a_second_cancellation_does_not_wait_for_the_cleanup() -> None:
    grader = Slow(100.0, cleanup=4.0)

    async def main() -> float:
        finalizer = Finalizer(grader)
        task = asyncio.create_task(finalizer.grade(small.group()))
        await asyncio.sleep(10.0)
        task.cancel()
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended = now()
        await asyncio.sleep(10.0)  # the cleanup itself was not broken off
        return ended

    assert clock.run(main()) == 11.0
    assert grader.cleaned == 1


def test_a_cancellation_after_a_deadline_does_not_break_the_cleanup_off() -> None:
    grader = Slow(9999.0, cleanup=4.0)

    async def main() -> float:
        finalizer = Finalizer(grader, timeout=10.0)
        task = asyncio.create_task(finalizer.grade(small.group()))
        await asyncio.sleep(11.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return now()

    assert clock.run(main()) == 14.0
    assert grader.cleaned == 1


def test_a_timeout_around_the_call_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> float:
        async with Finalizer(Slow(100.0)) as finalizer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(7.0):
                    await finalizer.grade(small.group())
            return now()

    assert clock.run(main()) == 7.0
    assert not caplog.records


def test_a_grader_that_ignores_cancellation_is_abandoned_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = []

    async def stubborn(group: CandidateGroup) -> Answer:
        until = now() + 3000.0
        while now() < until:
            try:
                await asyncio.sleep(until - now())
            except asyncio.CancelledError:
                continue
        ended.append(now())
        raise RuntimeError("nobody hears this")

    async def main() -> tuple[GradedGroup, float, list[str]]:
        async with Finalizer(stubborn, grace=5.0, timeout=100.0) as finalizer:
            graded = await finalizer.grade(small.group(name="g\nx"))
            returned = now()
        await asyncio.sleep(5000.0)
        return graded, returned, finalizer.abandoned

    with caplog.at_level(logging.WARNING):
        graded, returned, abandoned = clock.run(main())
    assert graded.fallback_reason == "timeout"
    assert returned == 105.0
    assert abandoned == ["g\nx"]
    assert "abandoned: g x" in caplog.text
    assert ended == [3000.0]


def test_closing_ends_what_is_in_progress_with_credit() -> None:
    grader = Slow(100.0, cleanup=1.0)

    async def main() -> list[GradedGroup]:
        finalizer = Finalizer(grader, max_concurrent=1)
        tasks = [asyncio.create_task(finalizer.grade(small.group())) for _ in range(2)]
        await asyncio.sleep(10.0)
        await finalizer.aclose()
        assert all(task.done() for task in tasks)
        with pytest.raises(RuntimeError, match="closed"):
            await finalizer.grade(small.group())
        return [task.result() for task in tasks]

    graded = clock.run(main())
    assert [g.fallback_reason for g in graded] == ["error", "error"]
    assert graded[0].detail == "the finalizer was closed"
    assert small.advantages(graded[1]) == pytest.approx(PLAIN, abs=1e-12)
    assert grader.cleaned == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrent": 0}, "max_concurrent must be an integer, at least 1; got 0"),
        ({"max_concurrent": 1.5}, "max_concurrent"),
        ({"timeout": 0.0}, "timeout must be a finite number, above 0; got 0.0"),
        ({"timeout": float("inf")}, "timeout"),
        ({"max_off_policy_steps": -1}, "max_off_policy_steps"),
        ({"grace": -1.0}, "grace"),
        ({"f_min": 1.5}, "f_min"),
        ({"lambda_max": 0.9}, "lambda_max"),
        ({"statistics": "rows"}, "statistics"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Finalizer(Slow(1.0), **options)


def test_options_reach_the_credit() -> None:
    group = small.group([1.0, 1.0, 0.0], helpers={0: 1, 2: 1})
    told = small.text(group, [["c01"], ["c02"]])
    by_traces = grade(Slow(0.0, told), group)
    by_candidates = grade(Slow(0.0, told), group, statistics="candidates")
    assert small.advantages(by_traces) == pytest.approx([0.48, 0.48, 0.24, -0.6, -0.6], abs=1e-12)
    assert small.advantages(by_candidates) == pytest.approx(
        [4 / 9, 4 / 9, 2 / 9, -2 / 3, -2 / 3], abs=1e-12
    )
    flat = grade(Slow(0.0), f_min=1.0)
    assert small.advantages(flat) == pytest.approx(PLAIN, abs=1e-12)
    capped = grade(Slow(0.0), lambda_max=1.0)
    assert capped.credit["g-0"].scale == 1.0


def test_an_outcome_needs_an_answer_or_a_reason() -> None:
    with pytest.raises(ValueError, match="an answer or a reason"):
        outcome(small.group())


# Many groups


def test_results_come_in_the_order_of_completion() -> None:
    async def grader(group: CandidateGroup) -> Answer:
        await asyncio.sleep(float(group.id))
        return answer()

    async def main() -> list[str]:
        groups = [small.group(name=str(seconds)) for seconds in (30, 10, 20, 5)]
        return [g.group async for g in grade_all(groups, grader, max_concurrent=3)]

    assert clock.run(main()) == ["10", "5", "20", "30"]


@pytest.mark.parametrize("kind", ["list", "generator", "asynchronous"])
def test_groups_are_loaded_as_there_is_room(kind: str) -> None:
    loaded: list[int] = []
    finished: list[int] = []
    most = 0

    def plain() -> Iterator[CandidateGroup]:
        nonlocal most
        for nth in range(20):
            loaded.append(nth)
            most = max(most, len(loaded) - len(finished))
            yield small.group(name=str(nth))

    async def later() -> AsyncIterator[CandidateGroup]:
        for group in plain():
            await asyncio.sleep(0.5)
            yield group

    async def main() -> int:
        source: Any = {"list": list(plain())} if kind == "list" else {}
        groups = source.get("list") or (plain() if kind == "generator" else later())
        async for graded in grade_all(groups, Slow(10.0), max_concurrent=3):
            assert graded.graded
            finished.append(int(graded.group))
            await asyncio.sleep(1.0)  # a consumer that takes its time holds the loading back
        return len(finished)

    assert clock.run(main()) == 20
    if kind != "list":
        assert most <= 3 + 2


def test_a_slow_source_does_not_hold_results_back() -> None:
    async def later() -> AsyncIterator[CandidateGroup]:
        yield small.group(name="first")
        await asyncio.sleep(1000.0)
        yield small.group(name="second")

    async def main() -> list[float]:
        return [now() async for _ in grade_all(later(), Slow(10.0))]

    assert clock.run(main()) == [10.0, 1010.0]


@pytest.mark.parametrize("how", ["cancelled", "left", "source fails"])
def test_however_the_iteration_ends_nothing_is_left_over(how: str) -> None:
    grader = Slow(10.0, cleanup=1.0)
    closed = []

    def source() -> Iterator[CandidateGroup]:
        try:
            for nth in range(50):
                if nth == 5 and how == "source fails":
                    raise OSError("the disk is gone")
                yield small.group(name=str(nth))
        finally:
            closed.append(now())

    async def consume() -> None:
        results = grade_all(source(), grader, max_concurrent=4)
        try:
            async for _ in results:
                if how == "left":
                    break
        finally:
            await results.aclose()

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(5.0)
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "source fails":
            with pytest.raises(OSError, match="the disk is gone"):
                await task
        else:
            await task
        # Cancelled, not waited for: within the second that the cleanup takes.
        assert now() == {"cancelled": 6.0, "left": 12.0, "source fails": 5.0}[how]

    clock.run(main())  # which looks for tasks that are left over
    assert closed
    assert grader.running == 0


def test_a_step_makes_groups_stale_from_the_start() -> None:
    grader = Slow(1.0)

    async def main() -> list[str | None]:
        groups = [small.group(policy_start=start) for start in (1, 2, None)]
        results = grade_all(groups, grader, step=10, max_off_policy_steps=8)
        return sorted([g.fallback_reason async for g in results], key=str)

    assert clock.run(main()) == [None, None, "stale"]
    assert grader.calls == 2


def test_the_clock_says_when_nothing_can_happen() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.NothingLeft):
        clock.run(main())
