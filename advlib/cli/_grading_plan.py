"""Which groups are graded, how, and what makes two gradings of a group the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from advlib import grading
from advlib.adapters._interrupt import collector_paused
from advlib.adapters.episodes import EpisodeIndex
from advlib.cli._errors import Refusal
from advlib.cli._grading_privileged import Texts
from advlib.cli._show import plain
from advlib.grading import CandidateGroup, Episode, Mode


class Plan(NamedTuple):
    """The groups of a grading.

    Attributes:
        episodes: where each group's episodes are.
        keys: the groups, in order of first appearance.
        mode: "rewards" or "advantages".
        texts: what the grader alone may see, of every group and of some.
        credit: options of `grading.outcome`.
    """

    episodes: EpisodeIndex
    keys: Sequence[str]
    mode: Mode
    texts: Texts
    credit: Mapping[str, Any]

    def privileged(self, key: str) -> dict[str, str]:
        """Names and texts for the grader of a group."""
        return self.texts.of(key, self.episodes.tasks[key])

    def groups(self) -> Iterator[tuple[CandidateGroup, list[Episode]]]:
        """Each group and the episodes that it was made of; one at a time is in memory.

        Raises:
            Refusal: the episodes of a group cannot be candidates.
        """
        for key in self.keys:
            with collector_paused():
                episodes = self.episodes.load(key)
            try:
                group = grading.candidates(
                    episodes, mode=self.mode, privileged=self.privileged(key)
                )
            except ValueError as error:
                raise Refusal(f"group {plain(key)}: {plain(str(error))}") from None
            yield group, episodes


def digest(group: CandidateGroup) -> str:
    """The SHA-256 of what a grader is given, and of whom the credit goes to."""
    content = [
        group.id,
        group.mode,
        group.task,
        sorted(group.privileged.items()),
        [
            [one.label, one.trace, one.passed, [[*turn] for turn in one.turns]]
            for one in group.candidates
        ],
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
