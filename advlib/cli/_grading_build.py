"""What a grading leaves behind, from its journal and the episodes: always the same bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from advlib import grading
from advlib.adapters._write import replacing
from advlib.adapters.annotations import json_line, write_annotations
from advlib.cli import _grading_record as record
from advlib.cli._grading_journal import Entry
from advlib.cli._grading_plan import Plan
from advlib.grading import Annotation, Answer, CandidateGroup, Episode, GradedGroup, Turn


class Build(NamedTuple):
    """What was found on the way.

    Attributes:
        groups: the groups, without their texts and tokens.
        graded: how each of them ended.
        samples: rollouts by what became of them: "credited", or why they have no credit.
    """

    groups: list[CandidateGroup]
    graded: list[GradedGroup]
    samples: Counter[str]


def build(plan: Plan, entry_of: Callable[[CandidateGroup], Entry | None], folder: str) -> Build:
    """Write annotations and grades of all groups, in the order of the files.

    Args:
        plan: the groups.
        entry_of: how each group ended; there is an entry for every one that had to be graded.
        folder: where to write.

    Raises:
        Refusal, OSError: a group cannot be read any more, or the disk is full.
    """
    built = Build([], [], Counter())
    with replacing(os.path.join(folder, record.GRADES)) as grades:
        write_annotations(
            _annotations(plan, entry_of, grades, built),
            os.path.join(folder, record.LINES),
            os.path.join(folder, record.TABLE),
        )
    return built


def _annotations(
    plan: Plan,
    entry_of: Callable[[CandidateGroup], Entry | None],
    grades: IO[bytes],
    built: Build,
) -> Iterator[Annotation]:
    for group, episodes in plan.groups():
        graded = settled(group, entry_of(group), plan)
        grade = grading.grade_episode(group, graded, environment=episodes[0].environment)
        if grade is not None:
            grades.write(json_line(grade))
        built.groups.append(_slim(group))
        built.graded.append(graded)
        built.samples.update(_samples(group, episodes))
        yield from grading.trace_annotations(group, graded)


def _samples(group: CandidateGroup, episodes: list[Episode]) -> Iterator[str]:
    """What became of each rollout; an episode without traces is one, as it is for `read`."""
    reasons = {one.episode: one.reason for one in group.left_out}
    credited = {trace.id for one in group.candidates for trace in one.traces}
    for episode in episodes:
        reason = reasons.get(episode.id, "not trainable")
        if not episode.traces:
            yield reason
        for trace in episode.traces:
            yield "credited" if trace.id in credited else reason


def settled(group: CandidateGroup, entry: Entry | None, plan: Plan) -> GradedGroup:
    """How the grading of a group ended, by its entry in the journal."""
    if entry is None or not grading.to_be_graded(group):
        return grading.outcome(group, **plan.credit)
    answer = None
    if entry.trace_id is not None:
        answer = Answer(
            entry.text,
            entry.trace_id,
            entry.model,
            entry.usage.input_tokens,
            entry.usage.output_tokens,
            entry.usage.cost,
        )
    return grading.outcome(
        group,
        answer,
        reason=entry.fallback_reason,
        detail=entry.detail,
        waiting=entry.waiting,
        grading=entry.grading,
        **plan.credit,
    )


def _slim(group: CandidateGroup) -> CandidateGroup:
    """A group without what is long: how many turns there were is all that is asked of them."""
    blank = Turn("")
    return group._replace(
        candidates=tuple(
            candidate._replace(
                turns=(blank,) * len(candidate.turns),
                traces=tuple(
                    trace._replace(turns=(blank,) * len(trace.turns), masks=(), info={})
                    for trace in candidate.traces
                ),
            )
            for candidate in group.candidates
        ),
    )
