"""Episodes of one group into anonymous candidates: who stands for what, who passed, who is seen."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence

from advlib.grading._group import (
    Candidate,
    CandidateGroup,
    Episode,
    LeftOut,
    Mode,
    Privileged,
    Trace,
)
from advlib.grading._transcript import elided

_EPS = sys.float_info.epsilon


def candidates(
    episodes: Iterable[Episode],
    *,
    mode: Mode = "rewards",
    privileged: Mapping[str, str] | None = None,
) -> CandidateGroup:
    """Make the candidates of one group, one for each episode that can be graded.

    An episode is represented by its first trainable, clean trace with a patch in its `info`, else
    by its first trainable, clean trace; without one it is left out, and in mode "rewards" it is
    left out too where that trace has no reward. Labels "c01", "c02", ... go to the candidates in
    the order that `random.Random(group).shuffle` gives them, so the same episodes in the same order
    always get the same labels.

    In mode "rewards" a candidate has passed if its reward is above the mean of the candidates'
    rewards; of the others, the grader sees the first and the last 10 turns. Rewards that are equal
    up to 4 units in the last place are equal, and one that equals the mean up to rounding is not
    above it. In mode "advantages" rewards are not read, and everyone has passed.

    Args:
        episodes: of one group, in the order of the file.
        mode: "rewards" or "advantages".
        privileged: names and texts that the grader alone may see. Printing the group shows names
            and sizes.

    Returns:
        CandidateGroup, with the episodes that were left out and why.

    Raises:
        ValueError: the mode is another word; there is no episode; the episodes are of several
            groups; a trace id stands twice; in mode "rewards" a reward is not finite.
        TypeError: a privileged text is no string.
    """
    if mode not in ("rewards", "advantages"):
        raise ValueError(f"mode must be 'rewards' or 'advantages'; got {mode!r}")
    every = list(episodes)
    group = _group_of(every)
    kept: list[tuple[Episode, Trace]] = []
    left_out: list[LeftOut] = []
    for episode in every:
        trace, reason = _representative(episode)
        if trace is not None and mode == "rewards" and trace.reward is None:
            trace, reason = None, "no reward"
        if trace is None:
            left_out.append(LeftOut(episode.id, reason))
        else:
            kept.append((episode, trace))
    if mode == "rewards":
        _check_rewards([trace for episode, _ in kept for trace in episode.traces])
    rewards = [float(trace.reward or 0) for _, trace in kept] if mode == "rewards" else []
    passed, mixed = _above_mean(rewards) if mode == "rewards" else ([True] * len(kept), False)
    order = list(range(len(kept)))
    random.Random(group).shuffle(order)
    starts = [episode.policy_start for episode in every if episode.policy_start is not None]
    return CandidateGroup(
        id=group,
        mode=mode,
        task=kept[0][0].task if kept else every[0].task,
        candidates=tuple(
            _candidate(f"c{nth:02d}", *kept[at], passed=passed[at])
            for nth, at in enumerate(order, 1)
        ),
        mixed=mixed,
        policy_start=min(starts, default=None),
        privileged=Privileged(privileged or {}),
        left_out=tuple(left_out),
    )


def _group_of(episodes: Sequence[Episode]) -> str:
    if not episodes:
        raise ValueError("a group needs an episode; got none")
    group = episodes[0].group
    seen: set[str] = set()
    for episode in episodes:
        if episode.group != group:
            raise ValueError(
                f"episodes must be of one group; got {group!r} and, in episode {episode.id!r}, "
                f"{episode.group!r}"
            )
        for trace in episode.traces:
            if trace.id in seen:
                raise ValueError(f"trace ids must be unique; {trace.id!r} stands twice")
            seen.add(trace.id)
    return group


def _representative(episode: Episode) -> tuple[Trace | None, str]:
    """The trace that speaks for an episode, or why there is none."""
    if not episode.traces:
        return None, "no traces"
    trainable = [trace for trace in episode.traces if trace.trainable]
    if not trainable:
        return None, "not trainable"
    clean = [trace for trace in trainable if trace.clean]
    if not clean:
        return None, "failed"
    return next((trace for trace in clean if "patch" in trace.info), clean[0]), ""


def _check_rewards(traces: Sequence[Trace]) -> None:
    """Refuse, before any grader is asked, rewards that no credit could be computed from."""
    for trace in traces:
        if trace.trainable and trace.reward is not None and not math.isfinite(trace.reward):
            raise ValueError(
                f"rewards must be finite, or None where nothing was measured; trace {trace.id!r}: "
                f"{trace.reward!r}"
            )


def _above_mean(rewards: Sequence[float]) -> tuple[list[bool], bool]:
    """Which rewards are above their mean, and whether they differ at all.

    The bounds for rounding are those of `advlib.gar`: what it calls equal is equal here.
    """
    if not rewards:
        return [], False
    # Divided by a power of two, which changes no digit: differences of the largest numbers fit.
    _, exponent = math.frexp(max(map(abs, rewards)))
    rewards = [math.ldexp(reward, -exponent) for reward in rewards]
    lowest, highest = min(rewards), max(rewards)
    width = highest - lowest
    if width <= 4 * _EPS * max(abs(lowest), abs(highest)):
        return [False] * len(rewards), False
    # From the lowest: small differences of large rewards survive.
    units = [(reward - lowest) / width for reward in rewards]
    mean = math.fsum(units) / len(units)
    noise = _EPS * (32 + 4 * abs(lowest / width + mean))
    return [unit - mean > noise for unit in units], True


def _candidate(label: str, episode: Episode, trace: Trace, *, passed: bool) -> Candidate:
    return Candidate(
        label=label,
        trace=trace.id,
        episode=episode.id,
        traces=tuple(each for each in episode.traces if each.trainable),
        reward=trace.reward,
        passed=passed,
        turns=trace.turns if passed else elided(trace.turns),
    )
