"""From episodes on disk to annotations on disk, and every number once more from the files alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advlib import grading
from advlib.cli import main
from advlib.grading import Answer, Episode, Trace, Turn
from tests.cli import graded
from tests.grading import agents, recompute
from tests.grading.server import Call, Reply

GROUPS = 200
CONFORMANCE = Path(__file__).parents[3] / "shared" / "conformance"
PLANTED = {3: "error", 7: "invalid", 11: "unknown label", 13: "no ranking", 17: "no tier"}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agents.write(tmp_path_factory.mktemp("episodes") / "traces.jsonl", GROUPS, seed=3)


def planted(group: str) -> str | None:
    return PLANTED.get(int(group.rsplit("-", 1)[1]) % 20)


def reader(mode: str) -> graded.Reader:
    """The perfect grader, spoilt for one group in four."""

    def read(group: str, labels: dict[str, str]) -> str:
        verdict = agents.verdict(group, labels, mode)
        fault = planted(group)
        if fault == "invalid":
            return "The first one is best."
        if fault == "unknown label":
            verdict["candidates"][0]["label"] = "c99"
        if fault == "no ranking":
            del verdict["ranking"]
        if fault == "no tier":
            verdict["ranking"].append([])
        return json.dumps(verdict)

    return read


def check(folder: Path, episodes: Path, mode: str) -> None:
    compared = recompute.verify([episodes], folder, mode=mode)
    lines = graded.journal(folder)
    wanted = {group: planted(group) for group in lines}
    assert compared["groups"] == GROUPS
    assert compared["graded"] == sum(fault is None for fault in wanted.values()) > 100
    assert compared["fallbacks"] == sum(fault is not None for fault in wanted.values()) > 20
    assert compared["traces"] > 1400
    assert compared["tokens"] > 50_000
    assert compared["nonzero"] > 900
    assert compared["confirmed"] > 40
    assert compared["downgraded"] > 20
    found = json.loads((folder / "summary.json").read_text())["groups"]["fallbacks"]
    told = Counter("error" if f == "error" else "invalid" for f in wanted.values() if f)
    assert found == dict(told)


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
def test_with_recorded_verdicts(episodes: Path, tmp_path: Path, mode: str) -> None:
    replay = graded.replay(tmp_path / "replay.jsonl", episodes, mode, reader(mode))
    lines = replay.read_text().splitlines(keepends=True)
    # A group that is not in the file is an error.
    kept = [line for line in lines if planted(json.loads(line)["group"]) != "error"]
    replay.write_text("".join(kept))
    folder = tmp_path / "out"
    words = ["grade", str(episodes), "-g", f"replay:{replay}", "-o", str(folder), "--mode", mode]
    assert main([*words, "-q"]) == 0
    check(folder, episodes, mode)


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
def test_with_a_server(episodes: Path, tmp_path: Path, mode: str) -> None:
    def fault(call: Call) -> Reply | None:
        if planted(call.name) == "error":
            return Reply.error(400, "the context is too long")
        # Everybody's first request to an odd group is refused in passing.
        odd = int(call.name.rsplit("-", 1)[1]) % 2
        if odd and call.attempt == 1:
            return Reply.error(429, "slow down", headers={"retry-after": "0"})
        return None

    folder = tmp_path / "out"
    with graded.server(episodes, mode, reader=reader(mode), fault=fault) as server:
        words = ["grade", str(episodes), *graded.http(server), "-o", str(folder), "--mode", mode]
        assert main([*words, "-q"]) == 0
        assert set(server.counts.values()) == {1, 2}
    check(folder, episodes, mode)


SPOILT: dict[str, Callable[[dict[str, Any]], None]] = {
    "an advantage": lambda u: u["info"].update(advantage=u["info"]["advantage"] + 2e-6),
    "a token": lambda u: u["branches"][-1]["advantages"].__setitem__(-1, 0.123),
    "a masked token": lambda u: u["branches"][0]["advantages"].__setitem__(0, 1e-9),
    "a stream": lambda u: u["branches"][0]["advantages"].pop(),
    "a branch": lambda u: u["branches"].pop(),
    "a label": lambda u: u["info"]["gar"].update(label="c09"),
    "a level": lambda u: u["info"]["gar"].update(hack="suspected"),
    "a tier": lambda u: u["info"]["gar"].update(tier=7),
    "a win rate": lambda u: u["info"]["gar"].update(w=0.123),
    "a share": lambda u: u["info"]["gar"].update(f=0.123),
    "lambda": lambda u: u["info"]["gar"].update({"lambda": 1.23}),
    "evidence": lambda u: u["info"]["gar"].update(evidence=[{"turn": 1, "quote": "x"}]),
    "a field less": lambda u: u["info"]["gar"].pop("w"),
    "a field more": lambda u: u["info"]["gar"].update(confidence=1.0),
    "a reason": lambda u: u["info"]["gar"].update(fallback_reason="stale"),
    "the grader": lambda u: u["info"]["gar"].update(grader_trace_id="x"),
}


def agrees(episodes: Path, folder: Path) -> bool:
    try:
        recompute.verify([episodes], folder)
    except AssertionError:
        return False
    return True


def test_the_recomputation_notices_every_number_that_is_off(tmp_path: Path) -> None:
    episodes = agents.write(tmp_path / "traces.jsonl", 4)
    replay = graded.replay(tmp_path / "replay.jsonl", episodes, "rewards")
    folder = tmp_path / "out"
    assert main(["grade", str(episodes), "-g", f"replay:{replay}", "-o", str(folder), "-q"]) == 0
    recompute.verify([episodes], folder)
    path = folder / "annotations.jsonl"
    lines = path.read_text().splitlines()
    for name, spoil in SPOILT.items():
        update = json.loads(lines[0])
        assert update["info"]["gar"]["hack"] == "none"
        spoil(update)
        path.write_text("\n".join([json.dumps(update), *lines[1:]]))
        assert not agrees(episodes, folder), f"{name} was not noticed"
    for broken in (lines[1:], lines[::-1], [*lines, lines[0]]):
        path.write_text("\n".join(broken))
        assert not agrees(episodes, folder)
    path.write_text("\n".join(lines))
    recompute.verify([episodes], folder)


def vectors(name: str) -> list[dict[str, Any]]:
    path = CONFORMANCE / f"{name}.json"
    if not path.exists():
        pytest.skip(f"the conformance vectors, {path}, are absent")
    return json.loads(path.read_text())["cases"]


def streams(case: dict[str, Any], mode: Any) -> tuple[dict[str, list[float]], str | None]:
    """A vector's group, made of traces of three tokens, as streams by row; and the fallback."""
    given = case["inputs"]
    rewards = given.get("rewards") or [None] * given["n"]
    quote = "I make the checker believe that row {} has passed."
    made = [
        Episode(
            f"e{row}", "g", "env", "task",
            (Trace(f"t{row}", reward, True, True, (Turn(quote.format(row)),),
                   ((False, True, True),)),),
        )
        for row, reward in enumerate(rewards)
    ]  # fmt: skip
    group = grading.candidates(made, mode=mode)
    label = {int(c.trace[1:]): c.label for c in group.candidates}
    tiers = [[label[row] for row in tier] for tier in given["tiers"]]
    ranked = {name for tier in tiers for name in tier}
    claims = []
    for row, name in label.items():
        level, evidence = "none", []
        if row in given["confirmed_hacks"]:
            level, evidence = "confirmed", [{"turn": 1, "quote": quote.format(row)}]
        elif name in group.passing and name not in ranked:
            # Out of every tier and no hack: it was claimed to be one, and the quotation failed.
            level, evidence = "confirmed", [{"turn": 1, "quote": "nobody ever wrote this line"}]
        claims.append({"label": name, "hack": level, "evidence": evidence})
    verdict = {"candidates": claims, "ranking": tiers, "margins": given.get("margins") or []}
    options = {name: given[name] for name in ("f_min", "lambda_max") if name in given}
    done = grading.outcome(group, Answer(json.dumps(verdict), "x"), **options)
    found = {one.trace: one for one in grading.trace_annotations(group, done)}
    return {f"t{row}": list(found[f"t{row}"].tokens[0]) for row in label}, done.fallback_reason


@pytest.mark.parametrize(("name", "mode"), [("gar", "rewards"), ("rank", "advantages")])
def test_vectors_from_the_text_of_a_verdict_to_every_token(name: str, mode: str) -> None:
    cases = vectors(name)
    compared = 0
    for case in cases:
        wanted = case["expected"].get("advantages") or case["expected"]["advantage"]
        found, reason = streams(case, mode)
        if reason is not None:
            # Vectors of the bare function also rank rows that did not pass; a verdict may not.
            assert mode == "rewards", (case["id"], reason)
            assert reason == "invalid"
            continue
        compared += 1
        for row, advantage in enumerate(wanted):
            stream = found[f"t{row}"]
            assert stream[0] == 0.0
            assert stream[1:] == pytest.approx([advantage] * 2, abs=1e-9), (case["id"], row)
    assert compared >= 0.9 * len(cases), f"{compared} of {len(cases)}"
