"""200 groups against a server that fails in three of ten calls: the accounts agree to the last one.

What the server does with each request follows from a seed, the group and the number of the attempt
alone, so how every group must end is known beforehand, whatever the order of events. No duration
decides anything: requests that hang are called off once nothing else is left to do, some by a
training step and the others by moving the loop's clock.

ADVLIB_FAULT_RUNS=20 runs it with 20 seeds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from advlib.grading import (
    CandidateGroup,
    Finalizer,
    GradedGroup,
    HttpGrader,
    grading_metrics,
    outcome,
)
from tests.grading import small
from tests.grading.server import Call, GraderServer, Reply, completion, names

RUNS = int(os.environ.get("ADVLIB_FAULT_RUNS", "1"))
NUM_GROUPS, SLOTS, RETRIES = 200, 32, 2
STEP, MAX_STEPS = 10, 2

AGAIN = (
    "drop",
    "drop in body",
    "cut",
    "429",
    "500",
    "503",
    "malformed",
    "truncated",
    "error in 200",
)
INVALID = ("unknown label", "missing label", "empty tier", "no json", "empty", "no choices")
ERROR = ("400", "length")
GRADED = ("ok", "slow", "miscited")
FAULTS = (*AGAIN, *INVALID, *ERROR, "slow", "miscited")


class Ending(NamedTuple):
    """How a group must end, and the faults on the way, one a request."""

    reason: str | None
    faults: tuple[str, ...]


class Plan:
    """What happens to each request, and so to each group, of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.groups = {f"g{nth}": self._group(nth) for nth in range(NUM_GROUPS)}
        draw = Random(seed)
        shuffled = draw.sample(list(self.groups), NUM_GROUPS)
        # Fewer than there are slots, so that the others can go on beside them.
        self.hanging = set(shuffled[:10])
        # Each fault hits the first request of three groups; later requests draw theirs.
        self.first = dict(zip(shuffled[10:], 3 * FAULTS, strict=False))
        self.endings = {name: self._ending(name) for name in self.groups}

    def fault(self, name: str, attempt: int) -> str:
        if name in self.hanging and attempt == 1:
            return "hang"
        if attempt == 1:
            return self.first.get(name, "ok")
        draw = Random(f"{self.seed} {name} {attempt}")
        return draw.choice(FAULTS) if draw.random() < 0.3 else "ok"

    def _group(self, nth: int) -> CandidateGroup:
        draw = Random(f"{self.seed} {nth}")
        passes = draw.randint(2, 6)
        rewards = [float(at < passes) for at in range(8)]
        draw.shuffle(rewards)
        start = STEP if draw.random() < 0.5 else None
        return small.group(rewards, name=f"g{nth}", policy_start=start)

    def _ending(self, name: str) -> Ending:
        faults: list[str] = []
        while len(faults) <= RETRIES:
            faults.append(self.fault(name, len(faults) + 1))
            if faults[-1] not in AGAIN:
                break
        last = faults[-1]
        if last == "hang":
            reason = "timeout" if self.groups[name].policy_start is None else "stale"
        elif last in GRADED:
            reason = None
        else:
            reason = "invalid" if last in INVALID else "error"
        return Ending(reason, tuple(faults))

    def verdict(self, name: str) -> dict[str, Any]:
        group = self.groups[name]
        best, *others = group.passing
        return small.verdict(group, [[best], others])

    def reply(self, call: Call) -> Reply:
        group, fault = self.groups[call.name], self.fault(call.name, call.attempt)
        verdict = self.verdict(call.name)
        text = json.dumps(verdict)
        good = completion(text)
        best, *others = group.passing
        replies: dict[str, Callable[[], Reply]] = {
            "ok": lambda: Reply(good),
            "slow": lambda: Reply(good, delay=0.02),
            "miscited": lambda: Reply.of(
                small.text(group, [others], hacks={best: "confirmed"}, quote="nobody wrote that")
            ),
            "hang": lambda: Reply(b"", hang=True),
            "drop": lambda: Reply(good, cut=0),
            "drop in body": lambda: Reply(good, cut=len(good) // 2),
            "cut": lambda: Reply(good, cut=len(good) // 2, length=False),
            "429": lambda: Reply.error(429, "later", headers={"retry-after": "0"}),
            "500": lambda: Reply(b"<html>oops</html>", 500),
            "503": lambda: Reply.error(503, "later", headers={"retry-after": "0.001"}),
            "400": lambda: Reply.error(400, "the context is too long"),
            "malformed": lambda: Reply(b'{"choices": [{"message": {"content": nope}}]}'),
            "truncated": lambda: Reply(good[:-7]),
            "error in 200": lambda: Reply(b'{"error": {"message": "overloaded", "code": 503}}'),
            "length": lambda: Reply.of(text[:50], finish_reason="length"),
            "no json": lambda: Reply.of(f"```json\n{text[:-1]}\n```"),
            "empty": lambda: Reply.of(None),
            "no choices": lambda: Reply.of(None, choices=[]),
            "unknown label": lambda: Reply.of(small.text([*group.labels, "c99"], [group.passing])),
            "missing label": lambda: Reply.of(small.text(group.labels[1:], [group.passing])),
            "empty tier": lambda: Reply.of(small.text(group, [[best], [], others])),
        }
        return replies[fault]()


class Clock(asyncio.SelectorEventLoop):
    """A real loop whose clock can be moved on."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an event; the test's own limit ends it where it never comes."""
    async with asyncio.timeout(600.0):
        while not condition():
            await asyncio.sleep(0.002)


async def grade(plan: Plan, server: GraderServer, loop: Clock) -> list[GradedGroup]:
    hung = [plan.groups[name] for name in plan.hanging]
    stale = {group.id for group in hung if group.policy_start is not None}
    grader = HttpGrader(
        server.url, "judge", timeout=1e6, max_retries=RETRIES, backoff=0.0, longest_pause=0.01
    )
    finalizer = Finalizer(grader, max_concurrent=SLOTS, max_off_policy_steps=MAX_STEPS)
    async with grader, finalizer:
        finalizer.advance(STEP)
        tasks = {
            name: asyncio.create_task(finalizer.grade(group)) for name, group in plan.groups.items()
        }

        def done() -> set[str]:
            return {name for name, task in tasks.items() if task.done()}

        await until(lambda: done() == set(tasks) - plan.hanging)
        await until(lambda: server.hanging == len(hung))
        finalizer.advance(STEP + MAX_STEPS)
        await asyncio.sleep(0.01)
        assert not done() & plan.hanging  # the last step that still takes them
        finalizer.advance(STEP + MAX_STEPS + 1)
        await until(lambda: done() == set(tasks) - plan.hanging | stale)
        await until(lambda: server.hanging == len(hung) - len(stale))
        loop.ahead += 1800.0
        results = [await task for task in tasks.values()]
        await until(lambda: server.hanging == 0)
        # Each slot is free, and no connection of the pool is in use.
        assert finalizer._slots._value == SLOTS
        assert not finalizer._waiting
        assert not finalizer._left
        assert finalizer.abandoned == []
        pool = grader._poster._client._transport._pool  # type: ignore[attr-defined]
        assert all(connection.is_idle() for connection in pool.connections)
        assert not pool._requests
    assert pool.connections == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await until(lambda: server.open == 0)
    return results


@pytest.mark.parametrize("seed", range(RUNS))
def test_every_group_ends_with_credit_and_the_accounts_agree(seed: int) -> None:
    plan = Plan(seed)
    loop = Clock()
    with GraderServer(plan.reply, names=names(plan.groups.values())) as server:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            results = runner.run(grade(plan, server, loop))
        gc.collect()  # a socket or a task that was left would warn here, which is an error

    # What the server did is what was planned, request by request.
    assert server.counts == {name: len(end.faults) for name, end in plan.endings.items()}
    injected = Counter(plan.fault(call.name, call.attempt) for call in server.calls)
    assert injected == Counter(fault for end in plan.endings.values() for fault in end.faults)
    assert all(injected[fault] >= 3 for fault in FAULTS)
    assert 0.25 < 1 - injected["ok"] / injected.total() < 0.4

    # Every group ended as it had to.
    assert [one.group for one in results] == list(plan.groups)
    for one in results:
        check(one, plan)
    reasons = Counter(one.fallback_reason for one in results)
    assert reasons == Counter(end.reason for end in plan.endings.values())
    assert set(reasons) == {None, "stale", "timeout", "error", "invalid"}

    metrics = grading_metrics(results, plan.groups.values())
    assert metrics["gar/graded"] * NUM_GROUPS == pytest.approx(reasons[None])
    for reason in ("stale", "timeout", "error", "invalid"):
        assert metrics[f"gar/fallback/{reason}"] * NUM_GROUPS == pytest.approx(reasons[reason])
    miscited = sum(end.faults[-1] == "miscited" for end in plan.endings.values())
    assert metrics["gar/citation_failed"] == 1.0
    passing = sum(len(one.passing) for one in results if one.graded)
    assert metrics["gar/hack_suspected"] * passing == pytest.approx(miscited)


def check(one: GradedGroup, plan: Plan) -> None:
    """One group: its reason, its requests, and the credit that follows."""
    group, (reason, faults) = plan.groups[one.group], plan.endings[one.group]
    assert one.fallback_reason == reason, (faults, one.detail)
    assert one.graded is (reason is None)
    assert set(one.credit) == {trace.id for c in group.candidates for trace in c.traces}
    advantages = small.advantages(one)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-12)
    plain = small.advantages(outcome(group, reason="error"))
    if reason is not None:
        assert advantages == plain
        assert one.detail
    elif faults[-1] == "miscited":
        assert one.claimed is not None
        assert one.verdict is not None
        pairs = zip(one.claimed.candidates, one.verdict.candidates, strict=True)
        levels = [(claim.hack, level.hack) for claim, level in pairs]
        assert levels.count(("confirmed", "suspected")) == 1
        assert levels.count(("none", "none")) == 7
        assert one.credit[one.labels[group.passing[0]]].advantage > 0
    else:
        best = one.credit[one.labels[group.passing[0]]]
        assert best.f == 1.0
        assert advantages != plain
    if reason in ("stale", "timeout"):
        assert one.answer is None
    else:
        assert one.answer is not None
        assert one.answer.attempts == len(faults)
        last = faults[-1]
        told = last in GRADED or last in INVALID or last == "length"
        assert one.answer.input_tokens == (100 if told else None)


def test_seeds_do_not_repeat_each_other() -> None:
    assert Plan(0).endings != Plan(1).endings
    assert Plan(3).endings == Plan(3).endings
