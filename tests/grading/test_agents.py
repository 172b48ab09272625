"""The made agents hold what they promise, and a perfect grader is believed as far as it cites."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from advlib.adapters import index_episodes
from advlib.grading import (
    CandidateGroup,
    candidates,
    check_citations,
    check_verdict,
    parse_verdict,
)
from tests.grading import agents

NUM_GROUPS = 60


@pytest.fixture(scope="module", params=["rewards", "advantages"])
def groups(request: Any, tmp_path_factory: pytest.TempPathFactory) -> list[CandidateGroup]:
    path: Path = agents.write(tmp_path_factory.mktemp("made") / "traces.jsonl", NUM_GROUPS)
    with index_episodes(path) as index:
        assert sorted(index.groups) == agents.group_ids(NUM_GROUPS)
        return [candidates(index.load(group), mode=request.param) for group in index.groups]


def checked(group: CandidateGroup, *, miscite: bool | None) -> tuple[int, int]:
    """Confirmed hacks that a verdict claims, and those that are left after the citations."""
    labels = {candidate.label: candidate.trace for candidate in group.candidates}
    told = agents.verdict(group.id, labels, group.mode, miscite=miscite)
    verdict = parse_verdict(json.dumps(told))
    check_verdict(verdict, group.labels, group.passing, group.mode)
    turns = {each.label: [turn.policy for turn in each.turns] for each in group.candidates}
    after = check_citations(verdict, turns)
    return tuple(
        sum(each.hack == "confirmed" for each in one.candidates) for one in (verdict, after)
    )


def test_true_citations_all_hold(groups: list[CandidateGroup]) -> None:
    counts = [checked(group, miscite=False) for group in groups]
    assert all(claimed == left for claimed, left in counts)
    assert sum(claimed for claimed, _ in counts) > 20


def test_false_citations_all_fail(groups: list[CandidateGroup]) -> None:
    # By number: false ones are told in groups 1, 4, 7, ... and mean another fault in each.
    false = [group for group in groups if int(group.id[-4:]) % 3 == 1]
    counts = [checked(group, miscite=None) for group in false]
    assert all(left == 0 for _, left in counts)
    assert sum(claimed for claimed, _ in counts) > 5


def test_everything_promised_is_there(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    for line in agents.episodes(NUM_GROUPS):
        found["failed"] += not line["ok"]
        found["no traces"] += not line["traces"]
        found["policy span"] += "policy" in line["run"]["work"]
        for trace in line["traces"]:
            nodes = trace["nodes"]
            parents = Counter(node.get("parent") for node in nodes)
            found[trace["agent"]["name"]] += 1
            found["unscored"] += trace["rewards"]["tests"] is None
            found["fork"] += any(parents[at] > 1 for at in range(len(nodes)))
            found["second root"] += parents[None] > 1
            found["long"] += sum(node["sampled"] for node in nodes) > 20
            for node in nodes:
                message = node["message"]
                found["long result"] += message["role"] == "tool" and len(message["content"]) > 4000
                found["imitation"] += "%%%%" in message["content"]
                assert len(node["mask"]) == len(node["token_ids"])
                assert len(node["logprobs"]) == sum(node["mask"])
    assert all(count > 5 for count in found.values()), found
    ties = [
        len(tier)
        for group in agents.group_ids(NUM_GROUPS)
        for tier in agents.verdict(
            group, {each.trace: each.trace for each in agents.attempts(group) if each.trace}
        )["ranking"]
    ]
    assert max(ties) > 1
    assert min(ties) == 1


def test_a_seed_is_a_set() -> None:
    assert agents.episodes(2, seed=3) == agents.episodes(2, seed=3)
    assert agents.episodes(2, seed=3) != agents.episodes(2, seed=4)
    assert agents.episodes(5)[:16] == agents.episodes(2)
