"""Credit as the trainer's files hold it: `info.gar`, one advantage a token, and the grader's trace.

Nothing here opens a file: annotations are plain values, which ``advlib.adapters`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from advlib.grading._citations import normalised
from advlib.grading._credit import TraceCredit
from advlib.grading._group import Candidate, CandidateGroup, Mode, Trace
from advlib.grading._outcome import GradedGroup
from advlib.grading._privileged import censored


class Annotation(NamedTuple):
    """What is known of one trace once its group was graded.

    Attributes:
        trace: the trace's id, on which it is joined.
        episode: its episode's id.
        group: its group's id.
        advantage: the credit.
        gar: the fields of ``info.gar``; None where there was nothing to grade.
        tokens: for each branch one advantage a token, exactly 0 where the policy did not sample.
    """

    trace: str
    episode: str
    group: str
    advantage: float
    gar: dict[str, Any] | None
    tokens: tuple[tuple[float, ...], ...] = ()


def trace_annotations(group: CandidateGroup, graded: GradedGroup) -> Iterator[Annotation]:
    """The annotations of a group's traces, candidate by candidate.

    Args:
        group: the candidates.
        graded: how the grading of this group ended.

    Yields:
        One `Annotation` for each trainable trace of each candidate, in the order of the labels. Of
        a quotation that is not the candidate's own, what it repeats of privileged texts is starred
        out, since annotations go where candidates go.

    Raises:
        ValueError: the two are of different groups.
    """
    if group.id != graded.group:
        raise ValueError(f"candidates of group {group.id!r} and a result of {graded.group!r}")
    evidence = {one.label: list(_evidence(one, group, graded)) for one in group.candidates}
    for candidate in group.candidates:
        for trace in candidate.traces:
            credit = graded.credit[trace.id]
            yield Annotation(
                trace=trace.id,
                episode=candidate.episode,
                group=group.id,
                advantage=credit.advantage,
                gar=_gar(credit, group.mode, graded, evidence[candidate.label]),
                tokens=token_advantages(trace, credit.advantage),
            )


def token_advantages(trace: Trace, advantage: float) -> tuple[tuple[float, ...], ...]:
    """One advantage a token for each branch of a trace, in float64.

    A node that several branches share is sampled in each of them, so each carries its value: a
    reader may take a node's stream from any branch.

    Args:
        trace: its ``masks`` hold one boolean a token for each branch.
        advantage: of the whole trace.

    Returns:
        For each branch as many numbers as its mask; nothing where the trace has no tokens.
    """
    import jax

    from advlib.masking import broadcast_to_tokens

    streams = []
    with jax.enable_x64(True):
        value = np.array([advantage], np.float64)
        for mask in trace.masks:
            # Lengths differ from branch to branch; powers of two keep the compiled programs few.
            padded = np.zeros((1, 1 << max(len(mask) - 1, 0).bit_length()), bool)
            padded[0, : len(mask)] = mask
            tokens = np.asarray(broadcast_to_tokens(value, padded))
            streams.append(tuple(tokens[0, : len(mask)].tolist()))
    return tuple(streams)


def update_of(annotation: Annotation) -> dict[str, Any]:
    """An annotation as prime-rl's update of a trace, joined on ``trace_id``."""
    info: dict[str, Any] = {"advantage": annotation.advantage}
    if annotation.gar is not None:
        info = {"gar": annotation.gar, **info}
    update: dict[str, Any] = {"version": 1, "trace_id": annotation.trace, "info": info}
    if annotation.tokens:
        update["branches"] = [
            {"index": index, "advantages": list(stream)}
            for index, stream in enumerate(annotation.tokens)
        ]
    return update


def grade_episode(
    group: CandidateGroup, graded: GradedGroup, *, environment: str = "grade"
) -> dict[str, Any] | None:
    """A grader's answer as an episode of kind "grade", which no reader takes for a rollout.

    It holds the answer and who was who. What the grader read is left out: the candidates stand in
    their own traces, and of privileged material only names and sizes are told.

    Args:
        group: what was graded.
        graded: how it ended.
        environment: name of the environment to write.

    Returns:
        A prime-rl episode of one trace, ready for JSON; None where there is no answer.
    """
    answer = graded.answer
    if answer is None:
        return None
    failed = graded.fallback_reason not in (None, "invalid")
    errors = [{"type": graded.fallback_reason, "message": graded.detail}] if failed else []
    message = {"role": "assistant", "content": answer.text}
    node = {"message": message, "sampled": True, "token_ids": [], "mask": [], "logprobs": []}
    usage = {
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "cost": answer.cost,
    }
    info = {
        "kind": "grade",
        "group_id": group.id,
        "mode": group.mode,
        "candidates": dict(graded.labels),
        "privileged": group.privileged.sizes(),
        "usage": usage,
    }
    trace = {
        "version": 1,
        "id": answer.trace_id,
        "agent": {"name": "grader", "trainable": False, "config": {"model": answer.model}},
        "nodes": [node] if answer.text else [],
        "rewards": {},
        "info": info,
        "ok": not failed,
        "errors": errors,
    }
    return {
        "id": f"{answer.trace_id}-episode",
        "env": {"id": environment, "name": environment},
        "task": {"type": "GroupGrade", "data": {}, "key": group.id},
        "ok": not failed,
        "errors": errors,
        "traces": [trace],
    }


def _evidence(
    candidate: Candidate, group: CandidateGroup, graded: GradedGroup
) -> Iterator[dict[str, Any]]:
    """A candidate's evidence; a grader may quote what only it was to see, and not the candidate."""
    evidence = graded.credit[candidate.trace].evidence
    secret = bool(evidence and group.privileged)
    turns = [normalised(turn.policy) for turn in candidate.turns] if secret else []
    for one in evidence:
        quote = one.quote
        if secret and not any(normalised(quote) in turn for turn in turns):
            quote = censored(quote, group.privileged.values())
        yield {"turn": one.turn, "quote": quote}


def _gar(
    credit: TraceCredit, mode: Mode, graded: GradedGroup, evidence: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The fields of ``info.gar``; those of a fallback say only that it was one."""
    reason = graded.fallback_reason
    answer = graded.answer
    end = {"fallback_reason": reason, "grader_trace_id": answer.trace_id if answer else None}
    if not graded.graded:
        return None if reason is None else {"label": credit.label, **end}
    found: dict[str, Any] = {
        "label": credit.label,
        "hack": credit.hack,
        "evidence": evidence,
        "tier": credit.tier,
        "w": credit.w,
    }
    if mode == "rewards":
        found |= {"f": credit.f, "lambda": credit.scale}
    else:
        found |= {"margins": list(credit.margins or ()), "advantage": credit.advantage}
    return found | end
