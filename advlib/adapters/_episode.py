"""One line of a rollout file as an episode: its rows say what was measured, its messages the rest.

Nothing is taken from a line but what the policy saw and wrote, the token masks and a v1 trace's own
`info`, less `privileged`. Answers, reference solutions and hidden tests of a task stay where they
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from advlib.adapters import nemo_gym, prime_rl, verifiers
from advlib.adapters._format import Outcome
from advlib.adapters._json import value
from advlib.adapters._messages import branch_masks, chat, forest, responses, responses_mask
from advlib.adapters._rows import Row
from advlib.adapters._values import flag, get, label, whole
from advlib.adapters.schema import FAILED, MASKED, NOT_TRAINABLE
from advlib.grading import Episode, Trace, turns_of

_PRIVILEGED = "privileged"


def episode_of(
    record: Any,
    outcomes: Sequence[Outcome],
    records: Sequence[int],
    group: str,
    where: str,
    component: str | None,
) -> Episode:
    """An episode of one line.

    Args:
        record: the line in its format's shape.
        outcomes: what the format's reader made of it.
        records: which of the outcomes are rows that count.
        group: the group's key.
        where: "file:line", which names what has no id.
        component: the part of a reward that counts, None for the reward itself.
    """
    rows = [(nth, row) for nth in records if isinstance(row := outcomes[nth], Row)]
    traces = [
        (made, row)
        for nth, row in rows
        if (made := _trace(record, nth, row, where + (f"#{nth}" if nth else ""), component))
        is not None
    ]
    first = rows[0][1]
    spoken = next((row for made, row in traces if made.trainable), first)
    v1 = isinstance(record, prime_rl.Record)
    work = get(record.run, "work") if v1 else None
    return Episode(
        id=(first.episode_id or first.rollout_id or (label(record.id) if v1 else None) or where),
        group=group,
        environment=first.environment,
        task=spoken.prompt or "",
        traces=tuple(made for made, _ in traces),
        ok=flag(record.ok) is not False if v1 else first.invalid_reason not in (MASKED, FAILED),
        policy_start=whole(get(get(work, "policy"), "start")),
        step=first.step,
        kind=first.kind,
    )


def _trace(record: Any, nth: int, row: Row, where: str, component: str | None) -> Trace | None:
    """The trace of a row; None for an episode in which nothing was sampled."""
    info: dict[str, Any] = {}
    trainable = True
    if isinstance(record, prime_rl.Record):
        traces = [record] if not isinstance(record.traces, list) else record.traces
        if not traces:
            return None
        trace = traces[nth]
        nodes = trace.nodes or []
        turns, masks = turns_of(forest(nodes)), branch_masks(nodes)
        trainable = get(trace.agent, "trainable") is not False
        if isinstance(trace.info, dict):
            info = {name: item for name, item in trace.info.items() if name != _PRIVILEGED}
    elif isinstance(record, nemo_gym.Rollout):
        items = value(record.response.output) if record.response else None
        turns, masks = turns_of(responses(items)), responses_mask(items)
    else:
        assert isinstance(record, verifiers.Rollout)
        turns, masks = turns_of(chat(record.prompt, value(record.completion))), ()
    # A reward is told where it is a measurement of this trace, be it of a frozen agent.
    measured = row.invalid_reason in (None, NOT_TRAINABLE)
    return Trace(
        id=row.rollout_id or where,
        reward=_reward(row, component) if measured else None,
        clean=row.invalid_reason not in (MASKED, FAILED),
        trainable=trainable,
        turns=turns,
        masks=masks,
        info=info,
        response_length=row.response_length,
    )


def _reward(row: Row, component: str | None) -> float | None:
    if component is None:
        return row.reward
    part = dict(row.reward_components or ()).get(component)
    return part if part is not None and math.isfinite(part) else None
