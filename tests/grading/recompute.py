"""Grades again from the files alone, and compares every number: no import of the package.

What a grading leaves behind must follow from the episodes, the journal and the settings. Labels,
representation, who is ranked, citations, tiers, credit and token streams are worked out here with
json and NumPy float64, from the description and not from the code.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = 1e-6
SAME = 1e-9  # rewards closer than this to their mean are not above it
GAPS = {"slight": 0.25, "clear": 0.5, "large": 1.0, None: 0.25}
BRIEF = ("label", "fallback_reason", "grader_trace_id")


class Sample(NamedTuple):
    """A trainable trace of a candidate."""

    id: str
    label: str
    reward: float | None
    masks: list[list[bool]]


class Group(NamedTuple):
    id: str
    labels: dict[str, str]  # label to the representing trace
    rewards: dict[str, float | None]  # of the representing traces
    turns: dict[str, list[str]]
    samples: list[Sample]


def verify(
    episodes: Sequence[Path],
    folder: Path,
    *,
    mode: str = "rewards",
    f_min: float = 0.5,
    lambda_max: float = 1.5,
) -> dict[str, int]:
    """Compare a folder with its inputs; AssertionError names the first number that is off.

    Returns:
        How much was compared, so that an empty comparison cannot pass for a good one.
    """
    counts = dict.fromkeys(
        ("groups", "graded", "traces", "tokens", "nonzero", "confirmed", "downgraded", "fallbacks"),
        0,
    )
    updates = {}
    for update in _lines(folder / "annotations.jsonl"):
        assert update["trace_id"] not in updates, f"two updates of {update['trace_id']}"
        updates[update["trace_id"]] = update
    journal = {line["group"]: line for line in _lines(folder / "journal.jsonl")}
    grades = {}
    for grade in _lines(folder / "grades.jsonl"):
        (trace,) = grade["traces"]
        assert trace["info"]["group_id"] not in grades
        grades[trace["info"]["group_id"]] = trace
    wanted: list[str] = []
    for group in groups(episodes, mode):
        counts["groups"] += 1
        entry = journal.pop(group.id, None)
        found = _credit(group, entry, mode, f_min, lambda_max)
        _check_grade(group, entry, grades.pop(group.id, None))
        counts["graded"] += found.graded
        counts["fallbacks"] += entry is not None and not found.graded
        counts["confirmed"] += sum(hack == "confirmed" for hack in found.hacks.values())
        counts["downgraded"] += found.downgraded
        for sample in group.samples:
            wanted.append(sample.id)
            assert sample.id in updates, f"{sample.id} has no annotation"
            _check(updates[sample.id], sample, group, entry, found, counts)
    assert list(updates) == wanted, "annotations of other traces, or in another order"
    assert not journal, f"journal of groups that are in no file: {list(journal)[:3]}"
    assert not grades, f"grades of groups that were not graded: {list(grades)[:3]}"
    return counts


class Credit(NamedTuple):
    graded: bool
    reason: str | None
    advantages: dict[str, float]  # by trace
    hacks: dict[str, str]  # by label, after the citations
    evidence: dict[str, list[Any]]
    tiers: dict[str, int]
    wins: dict[str, float]
    scale: float | None
    margins: list[str]
    downgraded: int = 0
    shares: dict[str, float] = {}  # noqa: RUF012  (never mutated)


def _check(
    update: dict[str, Any],
    sample: Sample,
    group: Group,
    entry: dict[str, Any] | None,
    found: Credit,
    counts: dict[str, int],
) -> None:
    where = f"{group.id} {sample.label} {sample.id}"
    advantage = found.advantages[sample.id]
    assert update["version"] == 1
    _close(update["info"]["advantage"], advantage, where)
    gar = update["info"].get("gar")
    if entry is None:
        assert gar is None, f"{where}: not graded, yet with info.gar"
    elif not found.graded:
        assert set(gar) == set(BRIEF), where
    else:
        _check_fields(gar, sample, found, where)
    if gar is not None:
        assert gar["label"] == sample.label, where
        assert gar["fallback_reason"] == found.reason, where
        assert gar["grader_trace_id"] == entry["trace_id"], where
    branches = update.get("branches", [])
    assert [branch["index"] for branch in branches] == list(range(len(sample.masks))), where
    for branch, mask in zip(branches, sample.masks, strict=True):
        assert len(branch["advantages"]) == len(mask), where
        for value, trained in zip(branch["advantages"], mask, strict=True):
            _close(value, advantage if trained else 0.0, where)
            assert trained or value == 0.0, where
        counts["tokens"] += len(mask)
    counts["traces"] += 1
    counts["nonzero"] += advantage != 0.0


def _check_fields(gar: dict[str, Any], sample: Sample, found: Credit, where: str) -> None:
    label = sample.label
    names = {"label", "hack", "evidence", "tier", "w", "fallback_reason", "grader_trace_id"}
    ranked = label in found.wins
    if found.scale is None:
        assert set(gar) == names | {"margins", "advantage"}, where
        assert gar["margins"] == found.margins, where
        _close(gar["advantage"], found.advantages[sample.id], where)
    else:
        assert set(gar) == names | {"f", "lambda"}, where
        _close(gar["lambda"], found.scale, where)
        assert (gar["f"] is not None) == ranked, where
        if ranked:
            _close(gar["f"], found.shares[label], where)
    assert gar["hack"] == found.hacks[label], where
    assert gar["evidence"] == found.evidence[label], where
    assert gar["tier"] == found.tiers.get(label), where
    assert (gar["w"] is not None) == ranked, where
    if ranked:
        _close(gar["w"], found.wins[label], where)


def _check_grade(group: Group, entry: dict[str, Any] | None, grade: dict[str, Any] | None) -> None:
    if entry is None or entry["trace_id"] is None:
        assert grade is None, f"{group.id}: a grade without an answer"
        return
    assert grade is not None, f"{group.id}: an answer without a grade"
    assert grade["id"] == entry["trace_id"]
    assert grade["info"]["kind"] == "grade"
    assert grade["info"]["candidates"] == group.labels == entry["labels"]
    told = [node["message"]["content"] for node in grade["nodes"]]
    assert told == ([entry["text"]] if entry["text"] else [])
    assert grade["ok"] is (entry["fallback_reason"] is None)
    assert not grade["agent"]["trainable"]


def _credit(
    group: Group, entry: dict[str, Any] | None, mode: str, f_min: float, lambda_max: float
) -> Credit:
    rewards = list(group.rewards.values())
    mixed = len(group.labels) > 1 and (mode == "advantages" or len(set(rewards)) > 1)
    assert (entry is not None) == mixed, f"{group.id}: mixed {mixed}, journal {entry}"
    plain = _plain(group) if mode == "rewards" else {sample.id: 0.0 for sample in group.samples}
    nothing = Credit(False, None, plain, {}, {}, {}, {}, None, [])
    if entry is None:
        return nothing
    if entry["fallback_reason"] is not None:
        return nothing._replace(reason=entry["fallback_reason"])
    passing = _passing(group) if mode == "rewards" else set(group.labels)
    verdict = _verdict(entry["text"], set(group.labels), passing)
    if verdict is None:
        return nothing._replace(reason="invalid")
    hacks, downgraded = {}, 0
    for told in verdict["candidates"]:
        level = told.get("hack", "none")
        if level == "confirmed" and not all(
            _holds(one, group.turns[told["label"]]) for one in told["evidence"]
        ):
            level, downgraded = "suspected", downgraded + 1
        hacks[told["label"]] = level
    evidence = {told["label"]: told.get("evidence", []) for told in verdict["candidates"]}
    credit = _redistributed if mode == "rewards" else _scored
    found = credit(group, verdict, hacks, f_min, lambda_max)
    return found._replace(evidence=evidence, hacks=hacks, downgraded=downgraded)


def _plain(group: Group) -> dict[str, float]:
    return dict(zip(_ids(group), _centred(_rewards(group)).tolist(), strict=True))


def _redistributed(
    group: Group, verdict: dict[str, Any], hacks: dict[str, str], f_min: float, lambda_max: float
) -> Credit:
    rewards = _rewards(group)
    confirmed = np.array([hacks[sample.label] == "confirmed" for sample in group.samples])
    rewards = np.where(confirmed & ~np.isnan(rewards), np.nanmin(rewards), rewards)
    advantages = _centred(rewards)
    tiers = {label: at for at, tier in enumerate(verdict["ranking"]) for label in tier}
    wins = _wins(verdict["ranking"])
    scale = 1.0
    above = advantages > SAME
    if above.any():
        f = np.array([f_min + (1 - f_min) * wins.get(s.label, 0.5) for s in group.samples])
        total, shared = advantages[above].sum(), (f * advantages)[above].sum()
        scale = lambda_max if shared <= 0 else min(lambda_max, total / shared)
        advantages = np.where(above, scale * f * advantages, advantages)
        measured = ~np.isnan(rewards)
        advantages = np.where(measured, advantages - advantages[measured].mean(), 0.0)
    by_trace = dict(zip(_ids(group), advantages.tolist(), strict=True))
    shares = {label: f_min + (1 - f_min) * win for label, win in wins.items()}
    return Credit(True, None, by_trace, {}, {}, tiers, wins, scale, [], shares=shares)


def _scored(
    group: Group, verdict: dict[str, Any], hacks: dict[str, str], f_min: float, lambda_max: float
) -> Credit:
    tiers = [list(tier) for tier in verdict["ranking"]]
    told = verdict.get("margins") or [None] * max(len(tiers) - 1, 0)
    worst = sorted(label for label, level in hacks.items() if level == "confirmed")
    gaps = [GAPS[gap] for gap in told] + ([1.0] if worst and tiers else [])
    tiers += [worst] if worst else []
    scores: dict[str, float] = {}
    for at, tier in enumerate(tiers):
        scores.update(dict.fromkeys(tier, sum(gaps[at:])))
    mean = float(np.mean(list(scores.values()))) if scores else 0.0
    if len(tiers) < 2:
        scores = {}
    by_trace = {s.id: scores[s.label] - mean if s.label in scores else 0.0 for s in group.samples}
    places = {label: at for at, tier in enumerate(verdict["ranking"]) for label in tier}
    words = [gap or "slight" for gap in told]
    return Credit(True, None, by_trace, {}, {}, places, _wins(tiers), None, words)


def _wins(tiers: list[list[str]]) -> dict[str, float]:
    total = sum(map(len, tiers))
    wins, below = {}, total
    for tier in tiers:
        below -= len(tier)
        for label in tier:
            wins[label] = (below + 0.5 * (len(tier) - 1)) / (total - 1) if total > 1 else 1.0
    return wins


def _verdict(text: str, labels: set[str], passing: set[str]) -> dict[str, Any] | None:
    """A verdict of the right structure, else None."""
    try:
        verdict = json.loads(text)
        named = [told["label"] for told in verdict["candidates"]]
        ranked = [label for tier in verdict["ranking"] for label in tier]
        confirmed = {t["label"] for t in verdict["candidates"] if t.get("hack") == "confirmed"}
        cited = all(t.get("evidence") for t in verdict["candidates"] if t["label"] in confirmed)
        gaps = verdict.get("margins", [])
    except (ValueError, KeyError, TypeError):
        return None
    good = (
        set(verdict) <= {"candidates", "ranking", "margins", "notes"}
        and sorted(named) == sorted(labels)
        and all(verdict["ranking"])
        and sorted(ranked) == sorted(passing - confirmed)
        and cited
        and len(gaps) in (0, len(verdict["ranking"]) - 1)
    )
    return verdict if good else None


def _holds(evidence: dict[str, Any], turns: list[str]) -> bool:
    quote = " ".join(evidence["quote"].split())
    if not 1 <= evidence["turn"] <= len(turns):
        return False
    if len(quote) < 20 and len(quote.split()) < 4:
        return False
    return quote in " ".join(turns[evidence["turn"] - 1].split())


def _passing(group: Group) -> set[str]:
    mean = float(np.mean(list(group.rewards.values())))
    return {label for label, reward in group.rewards.items() if reward > mean + SAME}


def _rewards(group: Group) -> np.ndarray:
    return np.array([np.nan if s.reward is None else s.reward for s in group.samples])


def _ids(group: Group) -> list[str]:
    return [sample.id for sample in group.samples]


def _centred(rewards: np.ndarray) -> np.ndarray:
    measured = ~np.isnan(rewards)
    values = rewards[measured]
    if len(set(values.tolist())) < 2:
        return np.zeros(len(rewards))
    return np.where(measured, rewards - values.mean(), 0.0)


def groups(paths: Sequence[Path], mode: str) -> list[Group]:
    """The groups of prime-rl episodes, in order of first appearance."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for episode in _lines(path):
            if any(trace["info"].get("kind") == "grade" for trace in episode["traces"]):
                continue
            found.setdefault(episode["group"]["id"], []).append(episode)
    return [_group(name, members, mode) for name, members in found.items()]


def _group(name: str, episodes: list[dict[str, Any]], mode: str) -> Group:
    chosen = []
    for episode in episodes:
        trained = [t for t in episode["traces"] if t.get("agent", {}).get("trainable", True)]
        clean = [trace for trace in trained if trace["ok"]]
        first = next((t for t in clean if "patch" in t["info"]), clean[0] if clean else None)
        if first is not None and (mode == "advantages" or _reward(first) is not None):
            chosen.append((first, trained))
    order = list(range(len(chosen)))
    random.Random(name).shuffle(order)
    labels = {f"c{nth:02d}": chosen[at][0] for nth, at in enumerate(order, 1)}
    label_of = {trace["id"]: label for label, trace in labels.items()}
    rewards = {label: _reward(trace) for label, trace in labels.items()}
    mean = np.mean([r for r in rewards.values() if r is not None]) if mode == "rewards" else 0.0
    turns = {}
    for label, trace in labels.items():
        written = [_written(node["message"]) for node in trace["nodes"] if node["sampled"]]
        weak = mode == "rewards" and not rewards[label] > mean + SAME
        if weak and len(written) > 20:
            written[10:-10] = ["[turn elided]"] * (len(written) - 20)
        turns[label] = written
    by_label = {
        label_of[first["id"]]: [
            Sample(t["id"], label_of[first["id"]], _reward(t) if t["ok"] else None, _masks(t))
            for t in trained
        ]
        for first, trained in chosen
    }
    samples = [sample for label in labels for sample in by_label[label]]
    ids = {label: trace["id"] for label, trace in labels.items()}
    return Group(name, ids, rewards, turns, samples)


def _reward(trace: dict[str, Any]) -> float | None:
    parts = [part for part in trace["rewards"].values() if part is not None]
    return sum(part["score"] * part["weight"] for part in parts) if parts else None


def _written(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls", [])
    told = [f"{call['name']} {call['arguments']}" for call in calls]
    return "\n".join([message.get("content") or "", *told])


def _masks(trace: dict[str, Any]) -> list[list[bool]]:
    """The sampled tokens of every path from a root to a leaf, in the order of the leaves."""
    nodes = trace["nodes"]
    parents = {node.get("parent") for node in nodes}
    masks = []
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path, at = [], leaf
        while at is not None:
            path.append(nodes[at]["mask"])
            at = nodes[at].get("parent")
        masks.append([trained for mask in reversed(path) for trained in mask])
    return masks


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _close(value: float, wanted: float, where: str) -> None:
    assert abs(value - wanted) <= TOLERANCE, f"{where}: {value} is not {wanted}"
