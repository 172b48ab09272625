"""Recorded verdicts: by group, by trace where labels moved, and what a file may not hold."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from advlib.grading import (
    Answer,
    CandidateGroup,
    GraderError,
    ReplayGrader,
    ScriptedGrader,
    Verdict,
    outcome,
    parse_verdict,
)
from tests.grading import small

RANKING = [["c01"], ["c02"], ["c03"]]
GROUP = small.group()
VERDICT = small.verdict(GROUP, RANKING)


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    path.write_text("".join(texts), encoding="utf-8")
    return path


def ask(grader: Any, group: CandidateGroup = GROUP) -> Answer:
    async def main() -> Answer:
        return await grader(group)

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def labels(group: CandidateGroup) -> dict[str, str]:
    return {candidate.label: candidate.trace for candidate in group.candidates}


def test_text_comes_back_to_the_letter(path: Path) -> None:
    text = "  " + json.dumps(VERDICT, indent=1)
    write(
        path,
        {
            "group": "g",
            "labels": labels(GROUP),
            "text": text,
            "trace_id": "t7",
            "model": "judge",
            "usage": {"input_tokens": 5, "output_tokens": 2, "cost": 0.5},
            "digest": "unread",
        },
    )
    assert ask(ReplayGrader(path)) == Answer(text, "t7", "judge", 5, 2, 0.5)


def test_a_verdict_may_stand_there_as_an_object(path: Path) -> None:
    write(path, {"group": "g", "verdict": VERDICT})
    answer = ask(ReplayGrader(path))
    assert json.loads(answer.text) == VERDICT
    assert (answer.trace_id, answer.model, answer.input_tokens) == ("replay:g", None, None)


FIELDS = {**VERDICT, "notes": "n"}


@pytest.mark.parametrize(
    "line",
    [
        {"group_id": "g", "verdict": FIELDS},
        {"group": "g", "group_id": "g", "verdict": FIELDS},
        {"group": "g", "verdict": json.dumps(FIELDS)},
        {"group": "g", **FIELDS},
        "\ufeff" + json.dumps({"group": "g", "verdict": FIELDS}) + "\n",
    ],
    ids=["group_id", "both", "verdict as text", "fields of the line", "mark at the start"],
)
def test_forms_that_people_write(path: Path, line: dict[str, Any] | str) -> None:
    write(path, line)
    answer = ask(ReplayGrader(path))
    assert outcome(GROUP, answer).verdict == parse_verdict(FIELDS)


def test_a_group_may_be_a_number(path: Path) -> None:
    write(path, {"group_id": 7, "text": "x"})
    assert ask(ReplayGrader(path), small.group(name="7")).text == "x"


def test_a_line_without_a_verdict_is_told_what_one_looks_like(path: Path) -> None:
    write(path, {"group": "g", "response": json.dumps(VERDICT)})
    with pytest.raises(GraderError, match=r':1: no verdict in this line; a line is {"group": '):
        ask(ReplayGrader(path))


def test_half_a_surrogate_pair_in_an_object_is_the_verdicts_fault(path: Path) -> None:
    write(path, {"group": "g", "verdict": {**VERDICT, "notes": "\ud800"}})
    assert "surrogate" in (outcome(GROUP, ask(ReplayGrader(path))).detail or "")


def test_a_compressed_file_is_refused(path: Path) -> None:
    path.write_bytes(gzip.compress(b'{"group": "g", "text": "x"}\n'))
    with pytest.raises(ValueError, match=r"journal\.jsonl: compressed"):
        ReplayGrader(path)


def test_an_object_keeps_what_a_parser_would_lose(path: Path) -> None:
    write(path, '{"group": "g", "verdict": {"notes": "a", "notes": "b"}}\n')
    graded = outcome(GROUP, ask(ReplayGrader(path)))
    assert graded.fallback_reason == "invalid"
    assert "two members" in (graded.detail or "")


def test_the_last_line_of_a_group_counts(path: Path) -> None:
    write(path, {"group": "g", "text": "old"}, {"group": "h", "text": "x"}, "\n",
          {"group": "g", "text": "new"})  # fmt: skip
    grader = ReplayGrader(path)
    assert ask(grader).text == "new"
    assert ask(grader, small.group(name="h")).text == "x"
    assert grader.groups == ["g", "h"]
    assert repr(grader) == f"ReplayGrader({str(path)!r}, 2 groups)"


def test_a_verdict_is_translated_by_trace(path: Path) -> None:
    verdict = small.verdict(
        GROUP,
        [["c01"], ["c02"]],
        hacks={"c03": "confirmed", "c04": "suspected"},
        margins=["large"],
        notes="c01 is best",
    )
    write(path, {"group": "g", "labels": labels(GROUP), "verdict": verdict})
    moved = small.group(order=[3, 0, 2, 1])  # c01..c04 are now traces 3, 0, 2, 1
    translated = parse_verdict(ask(ReplayGrader(path), moved).text)
    assert translated.ranking == [["c02"], ["c04"]]
    hacks = {entry.label: entry.hack for entry in translated.candidates}
    assert hacks == {"c02": "none", "c04": "none", "c03": "confirmed", "c01": "suspected"}
    assert translated.candidates[2].evidence[0].quote == small.QUOTE
    assert translated.margins == ["large"]
    assert translated.notes == "c01 is best"
    credit = outcome(moved, ask(ReplayGrader(path), moved)).credit
    straight = outcome(GROUP, Answer(json.dumps(verdict), "t")).credit
    assert {t: c.advantage for t, c in credit.items()} == {
        t: c.advantage for t, c in straight.items()
    }


def test_labels_are_whole_words(path: Path) -> None:
    # c1 and c10 would eat each other if text were replaced.
    group = small.group([1.0] * 11 + [0.0])
    names = {f"c{n + 1}": f"g-{n}" for n in range(12)}
    verdict = small.verdict(list(names), [["c10"], ["c1", *list(names)[1:9], "c11"]])
    write(path, {"group": "g", "labels": names, "verdict": verdict})
    graded = outcome(group, ask(ReplayGrader(path), group))
    assert graded.graded
    assert graded.verdict is not None
    assert graded.verdict.ranking[0] == ["c10"]
    assert graded.verdict.ranking[1][:2] == ["c01", "c02"]


def test_a_label_that_nobody_had_stays_unknown(path: Path) -> None:
    # "c04" names nobody in the recorded map, and somebody now.
    recorded = {"c01": "g-0", "c02": "g-1", "c03": "g-2", "x": "g-3"}
    write(path, {"group": "g", "labels": recorded, "verdict": VERDICT})
    graded = outcome(GROUP, ask(ReplayGrader(path)))
    assert graded.fallback_reason == "invalid"
    assert "unknown" in (graded.detail or "")


def test_what_was_no_verdict_stays_none(path: Path) -> None:
    moved = small.group(order=[3, 0, 2, 1])
    write(path, {"group": "g", "labels": labels(GROUP), "text": "not json c01"})
    assert ask(ReplayGrader(path), moved).text == "not json c01"
    write(path, {"group": "g", "labels": labels(GROUP), "text": ""})
    assert outcome(GROUP, ask(ReplayGrader(path))).fallback_reason == "invalid"


def test_a_group_that_is_not_there(path: Path) -> None:
    write(path, {"group": "h", "text": "x"})
    with pytest.raises(GraderError, match=r"no verdict of group 'g' was recorded; its groups: 'h'"):
        ask(ReplayGrader(path))


def test_other_candidates_are_refused(path: Path) -> None:
    recorded = {**labels(GROUP), "c04": "somebody-else"}
    usage = {"input_tokens": 5}
    write(path, {"group": "g", "labels": recorded, "verdict": VERDICT, "usage": usage})
    with pytest.raises(GraderError, match=r":1: group 'g' .*'g-3', 'somebody-else'") as caught:
        ask(ReplayGrader(path))
    assert caught.value.answer is not None
    assert caught.value.answer.text == ""
    assert caught.value.answer.input_tokens == 5


def test_a_recorded_fallback_is_an_error_again(path: Path) -> None:
    write(path, {"group": "g", "text": "", "fallback_reason": "timeout", "detail": "after 1800 s"})
    with pytest.raises(GraderError, match="recorded without a verdict: timeout: after 1800 s"):
        ask(ReplayGrader(path))


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        '{"group": 7.5}',
        '{"group": "g", "group_id": "h"}',
        "\xff",
        "[" * 100_000,
    ],
    ids=["text", "array", "empty", "number", "two groups", "latin", "deep"],
)
def test_a_line_that_is_no_record_is_named(path: Path, line: str) -> None:
    write(path, {"group": "g", "text": "x"}, line[:50_000] + "\n")
    with pytest.raises(ValueError, match=r"journal\.jsonl:2: .*; a line is {") as caught:
        ReplayGrader(path)
    assert len(str(caught.value)) < 400


def test_a_field_of_another_type_is_named_when_it_is_read(path: Path) -> None:
    write(path, {"group": "g", "labels": ["c01"]}, {"group": "h", "text": "x"})
    grader = ReplayGrader(path)
    assert ask(grader, small.group(name="h")).text == "x"
    with pytest.raises(GraderError, match=r":1: not a recorded verdict: .*labels"):
        ask(grader)


def test_a_torn_last_line_is_left_out_with_a_warning(path: Path) -> None:
    write(path, {"group": "g", "text": "x"}, '{"group": "h", "te')
    with pytest.warns(UserWarning, match=r":2: the last line is cut off and left out"):
        grader = ReplayGrader(path)
    assert grader.groups == ["g"]
    write(path, {"group": "g", "text": "x"}, '{"group": "h", "text": "y"}')  # only its end is lost
    assert ReplayGrader(path).groups == ["g", "h"]


@pytest.mark.parametrize("line", ["{}", "[]", "null", '{"group": 1.5}'])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_that_is_whole_and_no_record_is_refused(
    path: Path, line: str, end: str
) -> None:
    path.write_text('{"group": "g", "text": "x"}\n' + line + end)
    with pytest.raises(ValueError, match=r":2: not a recorded verdict: .*; a line is"):
        ReplayGrader(path)


def test_a_file_that_was_rewritten_is_noticed(path: Path) -> None:
    write(path, {"group": "g", "text": "x"})
    grader = ReplayGrader(path)
    write(path, {"group": "h", "text": "x"})
    with pytest.raises(GraderError, match="was changed"):
        ask(grader)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReplayGrader(tmp_path / "none")


# Scripts


@pytest.mark.parametrize(
    "given",
    [VERDICT, json.dumps(VERDICT), parse_verdict(VERDICT), Answer(json.dumps(VERDICT), "t")],
    ids=["dict", "text", "verdict", "answer"],
)
@pytest.mark.parametrize("form", ["mapping", "function", "coroutine"])
def test_a_script_gives_a_verdict_in_any_form(given: Any, form: str) -> None:
    async def later(group: CandidateGroup) -> Any:
        await asyncio.sleep(0)
        return given

    scripts: dict[str, Any] = {
        "mapping": {"g": given},
        "function": lambda group: given,
        "coroutine": later,
    }
    answer = ask(ScriptedGrader(scripts[form]))
    assert isinstance(parse_verdict(answer.text), Verdict)
    assert parse_verdict(answer.text) == parse_verdict(VERDICT)
    assert answer.trace_id == ("t" if isinstance(given, Answer) else "scripted:g")


def test_a_script_passes_nonsense_on() -> None:
    assert ask(ScriptedGrader({"g": "nonsense"})).text == "nonsense"


def test_a_script_without_the_group() -> None:
    with pytest.raises(GraderError, match="the script has no group 'g'"):
        ask(ScriptedGrader({}))


def test_a_script_that_gives_no_verdict() -> None:
    with pytest.raises(TypeError, match="a script gives a verdict; got int"):
        ask(ScriptedGrader(lambda group: 7))  # type: ignore[arg-type,return-value]
