"""What is graded: the episodes of one group, and the anonymous candidates made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

Mode = Literal["rewards", "advantages"]
"""How a verdict is used: to share the credit of rewards, or as all there is."""

Reason = Literal["stale", "timeout", "error", "invalid"]
"""Why a group has no verdict, though one was wanted."""


class Turn(NamedTuple):
    """One sampled message of the policy, with what came back.

    Attributes:
        policy: what the policy wrote: visible content, then its tool calls under their headers.
        results: what came back, results of this turn's calls and the environment's replies, each
            cut where it is long; not the policy's words, so never evidence.
    """

    policy: str
    results: tuple[str, ...] = ()


class Trace(NamedTuple):
    """One trajectory of an episode, as far as grading and credit need it.

    Attributes:
        id: the trace's id; annotations are joined on it.
        reward: the reward, None where there is none.
        clean: it ended without an error.
        trainable: a sample of the policy that is being trained.
        turns: numbered from 1, see ``Turn``.
        masks: for each branch, root to leaf, one boolean a token: sampled by the policy. Empty
            where the file has no tokens.
        info: the trace's free fields, such as ``patch``.
        response_length: tokens that the policy sampled, None where unknown.
    """

    id: str
    reward: float | None
    clean: bool
    trainable: bool
    turns: tuple[Turn, ...]
    masks: tuple[tuple[bool, ...], ...] = ()
    info: Mapping[str, Any] = {}
    response_length: int | None = None


class Episode(NamedTuple):
    """One rollout of a task: one trace, or several where agents work together.

    Attributes:
        id: the episode's id.
        group: the advantage group.
        environment: the environment's name.
        task: the task's text, as the policy saw it.
        traces: in the order of the file.
        ok: the episode as a whole ended without an error. It decides nothing: each trace says
            itself whether it is clean, as a trace may be where another one of its episode failed.
        policy_start: step of the oldest policy that sampled it, None where unknown.
        step: training step, None where unknown.
        kind: "train", "eval", "grade" or another word of the file.
    """

    id: str
    group: str
    environment: str
    task: str
    traces: tuple[Trace, ...]
    ok: bool = True
    policy_start: int | None = None
    step: int | None = None
    kind: str | None = None


class Candidate(NamedTuple):
    """An episode as the grader sees it.

    Attributes:
        label: anonymous: "c01", "c02", ... in an order that the group's id shuffles.
        trace: id of the trace that represents the episode; the grader never sees it.
        episode: id of the episode; the grader never sees it.
        traces: the episode's trainable traces, all of which get the credit.
        reward: the representing trace's reward; the grader never sees it.
        passed: above the mean of the rewards, so ranked; everyone in advantages mode.
        turns: what the grader is given, elided where the candidate did not pass.
    """

    label: str
    trace: str
    episode: str
    traces: tuple[Trace, ...]
    reward: float | None
    passed: bool
    turns: tuple[Turn, ...]


class LeftOut(NamedTuple):
    """An episode that is no candidate.

    Attributes:
        episode: its id.
        reason: "no traces", "not trainable", "failed" or "no reward".
    """

    episode: str
    reason: str


class Privileged(Mapping[str, str]):
    """Names and texts for the grader's eyes; printed, it tells names and sizes alone."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError(
                    f"privileged must map names to texts; {name!r} maps to {type(text).__name__}"
                )
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def sizes(self) -> dict[str, int]:
        """Each text's length in characters: what may be recorded of it."""
        return {name: len(text) for name, text in self._texts.items()}

    def __repr__(self) -> str:
        return f"Privileged({self.sizes()})"


class CandidateGroup(NamedTuple):
    """The candidates of one group, ready to be graded.

    Attributes:
        id: the group's id.
        mode: "rewards" ranks those that passed; "advantages" ranks all, without rewards.
        task: the task's text.
        candidates: in the order of their labels.
        mixed: the candidates' rewards are not all equal; what rewards mode needs to grade at all.
        policy_start: step of the oldest policy of any episode, None where none is known.
        privileged: names and texts for the grader's eyes only (hidden tests, a reference patch).
        left_out: the episodes that are no candidates, in the order given.
    """

    id: str
    mode: Mode
    task: str
    candidates: tuple[Candidate, ...]
    mixed: bool
    policy_start: int | None = None
    privileged: Privileged = Privileged({})
    left_out: tuple[LeftOut, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Every candidate's label."""
        return [candidate.label for candidate in self.candidates]

    @property
    def passing(self) -> list[str]:
        """Labels of the candidates that are ranked."""
        return [candidate.label for candidate in self.candidates if candidate.passed]
