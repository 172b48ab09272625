"""What is a verdict, and which group it fits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from advlib import grading
from advlib.grading import (
    MAX_VERDICT_CHARS,
    Evidence,
    InvalidVerdict,
    candidate_info,
    check_verdict,
    parse_verdict,
    verdict_arrays,
)
from tests.grading.verdicts import verdict

LABELS = ["c01", "c02", "c03"]
PLAIN: dict[str, Any] = {
    "candidates": [
        {"label": "c01", "hack": "none", "evidence": []},
        {"label": "c02", "hack": "suspected", "evidence": [{"turn": 2, "quote": "exit(0)"}]},
        {"label": "c03"},
    ],
    "ranking": [["c01"], ["c02", "c03"]],
    "margins": ["clear"],
    "notes": "c02 is close to a hack",
}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in PLAIN.items() if key != name}


def with_evidence(turn: str) -> str:
    """JSON text with a turn as it is written."""
    return (
        '{"candidates": [{"label": "c01", "hack": "confirmed", "evidence": '
        f'[{{"turn": {turn}, "quote": "exit(0)"}}]}}], "ranking": []}}'
    )


@pytest.mark.parametrize(
    "source",
    [PLAIN, json.dumps(PLAIN), json.dumps(PLAIN).encode(), f" \n{json.dumps(PLAIN, indent=2)}\r\n"],
    ids=["dict", "str", "bytes", "with whitespace"],
)
def test_a_verdict_is_read_from_text_bytes_or_a_dict(source: Any) -> None:
    read = parse_verdict(source)
    assert [entry.label for entry in read.candidates] == LABELS
    assert [entry.hack for entry in read.candidates] == ["none", "suspected", "none"]
    assert read.candidates[1].evidence == [Evidence(2, "exit(0)")]
    assert read.ranking == [["c01"], ["c02", "c03"]]
    assert read.margins == ["clear"]
    assert read.notes == "c02 is close to a hack"


def test_margins_and_notes_may_be_left_out() -> None:
    read = parse_verdict({"candidates": [], "ranking": []})
    assert read.margins == []
    assert read.notes == ""
    assert parse_verdict({**PLAIN, "margins": None}).margins == []
    assert parse_verdict({**PLAIN, "margins": [None]}).margins == [None]


NOT_JSON = {
    "empty": ("", "not JSON: .* the text is empty"),
    "a sentence": ("I rank c01 first.", "not JSON: .* begins 'I rank c01 first.'"),
    "a fence": (f"```json\n{json.dumps(PLAIN)}\n```", "not JSON: .*line 1, column 1"),
    "a sentence behind": (json.dumps(PLAIN) + " Done.", "not JSON: Extra data"),
    "cut off": (json.dumps(PLAIN)[:-9], "not JSON: "),
    "an array": ("[]", "a verdict is a JSON object; got an array"),
    "null": ("null", "a verdict is a JSON object; got null"),
    "a number": ("1", "a verdict is a JSON object; got a number"),
    "a string": ('"c01"', "a verdict is a JSON object; got a string"),
    "true": ("true", "a verdict is a JSON object; got a boolean"),
    "NaN": ('{"candidates": NaN, "ranking": []}', "NaN is no JSON number"),
    "Infinity": ('{"candidates": [], "ranking": -Infinity}', "-Infinity is no JSON number"),
    "not UTF-8": (b'{"candidates": [], "ranking": [], "notes": "\xff"}', "not UTF-8: .* byte 44"),
    "UTF-16": (json.dumps(PLAIN).encode("utf-16"), "not UTF-8"),
    "a byte order mark": ("\ufeff" + json.dumps(PLAIN), "not JSON: .*BOM"),
    "a raw newline in a string": ('{"notes": "a\nb"}', "not JSON: Invalid control character"),
    "a key twice": (
        '{"candidates": [], "ranking": [["c01"]], "ranking": []}',
        "two members named 'ranking'",
    ),
    "a key twice further in": (
        '{"candidates": [{"label": "a", "hack": "none", "hack": "confirmed"}], "ranking": []}',
        "two members named 'hack'",
    ),
    "10,000 deep": ("[" * 10_000 + "]" * 10_000, "nested too deeply"),
    "10,000 deep in notes": ('{"notes": ' + '{"a":' * 10_000, "nested too deeply"),
    "an integer of 5,000 digits": (with_evidence("9" * 5000), "does not fit 64 bits"),
    "an integer of 65 bits": (with_evidence(str(2**64)), "of 'c01' does not fit 64 bits"),
    "an escaped half of a pair": (
        json.dumps({**PLAIN, "notes": "\ud83d"}),
        r"half a surrogate pair, which is no character: '\\ud83d'",
    ),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_text_that_is_no_verdict(name: str) -> None:
    text, message = NOT_JSON[name]
    with pytest.raises(InvalidVerdict, match=message):
        parse_verdict(text)


WRONG = {
    "no candidates": (without("candidates"), "missing required field `candidates`"),
    "no ranking": (without("ranking"), "missing required field `ranking`"),
    "confidence": ({**PLAIN, "confidence": 0.9}, "unknown field `confidence`"),
    "axes": ({**PLAIN, "axes": {}}, "unknown field `axes`"),
    "hack_kind": (
        {**PLAIN, "candidates": [{"label": "c01", "hack_kind": "tests"}]},
        r"candidates\[0\]: .*unknown field `hack_kind`",
    ),
    "a field of evidence": (
        {**PLAIN, "candidates": [{"label": "c01", "evidence": [{"turn": 1, "text": "x"}]}]},
        r"candidates\[0\].evidence\[0\]: .*unknown field `text`",
    ),
    "no label": ({**PLAIN, "candidates": [{"hack": "none"}]}, r"candidates\[0\]: .*`label`"),
    "no quote": (
        {**PLAIN, "candidates": [{"label": "c01", "evidence": [{"turn": 1}]}]},
        r"candidates\[0\].evidence\[0\]: .*`quote`",
    ),
    "another level": (
        {**PLAIN, "candidates": [{"label": "c01", "hack": "certain"}]},
        r"candidates\[0\].hack: Invalid enum value 'certain'",
    ),
    "another margin": ({**PLAIN, "margins": ["huge"]}, r"margins\[0\]: Invalid enum value 'huge'"),
    "a margin as a number": ({**PLAIN, "margins": [0.5]}, r"margins\[0\]: Expected `str \| null`"),
    "a tier that is a label": ({**PLAIN, "ranking": ["c01"]}, r"ranking\[0\]: Expected `array`"),
    "a label that is a number": ({**PLAIN, "ranking": [["c01", 2]]}, r"ranking\[0\]\[1\]: "),
    "candidates by label": ({**PLAIN, "candidates": {"c01": "none"}}, "candidates: Expected"),
    "notes that are null": ({**PLAIN, "notes": None}, "notes: Expected `str`, got `null`"),
    "a key that is no text": ({**PLAIN, 1: 2}, "Expected `str`"),
    "a key with half a pair": ({**PLAIN, "\ud800": 2}, "half a surrogate pair"),
    "a label with half a pair": ({**PLAIN, "ranking": [["c\udfff"]]}, "half a surrogate pair"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_named(name: str) -> None:
    source, message = WRONG[name]
    with pytest.raises(InvalidVerdict, match=message):
        parse_verdict(source)


@pytest.mark.parametrize("turn", ["true", "1.0", "1e0", '"1"', "null", "[1]", "1.5", "1e400"])
def test_a_turn_is_an_integer(turn: str) -> None:
    with pytest.raises(InvalidVerdict, match=r"candidates\[0\].evidence\[0\].turn: Expected `int`"):
        parse_verdict(with_evidence(turn))


@pytest.mark.parametrize("turn", [0, -1, -(2**63), 2**63 - 1])
def test_a_turn_that_is_out_of_range_is_for_the_citation_check(turn: int) -> None:
    assert parse_verdict(with_evidence(str(turn))).candidates[0].evidence[0].turn == turn


def test_text_over_the_limit_is_not_parsed() -> None:
    head, tail = '{"candidates": [], "ranking": [], "notes": "', '"}'
    fits = head + "x" * (MAX_VERDICT_CHARS - len(head) - len(tail)) + tail
    assert len(parse_verdict(fits).notes) > 4_000_000
    with pytest.raises(InvalidVerdict, match="4,194,305 characters; at most 4,194,304 are read"):
        parse_verdict(fits + " ")
    with pytest.raises(InvalidVerdict, match="4,194,305 bytes"):
        parse_verdict(fits.encode() + b" ")


@pytest.mark.parametrize(
    "source",
    [
        "x" * 100_000,
        {**PLAIN, "x\x1b[2J" * 10_000: 1},
        {**PLAIN, "margins": ["\x1b]0;" * 10_000]},
        '{"\\u001b[2J\\n": 1, "\\u001b[2J\\n": 2}',
        {**PLAIN, "candidates": [{"label": "c01", "hack": "\u202e" * 9999}]},
    ],
    ids=["text", "field", "margin", "key", "level"],
)
def test_a_message_is_one_short_printable_line(source: Any) -> None:
    with pytest.raises(InvalidVerdict) as caught:
        parse_verdict(source)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 200


@pytest.mark.parametrize("source", [None, 3, [PLAIN], bytearray(b"{}")])
def test_anything_else_is_the_callers_mistake(source: Any) -> None:
    with pytest.raises(TypeError, match="JSON text, bytes or a dict"):
        parse_verdict(source)


def check(told: dict[str, Any], passing: Any = LABELS, mode: Any = "rewards") -> None:
    check_verdict(parse_verdict(told), LABELS, passing, mode)


def test_a_verdict_that_fits_passes() -> None:
    check(verdict(LABELS, [["c01"], ["c02", "c03"]]))
    check(verdict(LABELS, [["c01"], ["c02", "c03"]], margins=["large"]), None, "advantages")
    check(verdict(LABELS, [["c03", "c01", "c02"]], suspected=["c03"]), LABELS, "advantages")
    check(verdict(LABELS, [["c02"]], confirmed=["c01"], margins=[]), ["c01", "c02"])
    check(verdict(LABELS, [["c02"]]), ["c02"])
    check(verdict(LABELS, [], confirmed=LABELS), None, "advantages")
    check(verdict(LABELS, [], confirmed=["c01"]), ["c01"])
    check(verdict(LABELS, []), [])
    check(verdict(LABELS, [["c01"], ["c02"], ["c03"]], margins=[None, "slight"]))


UNFIT = {
    "a label is missing": (verdict(["c01", "c02"], [["c01"], ["c02"]]), "candidates: 'c03' mis"),
    "a label is judged twice": (
        verdict([*LABELS, "c02"], [LABELS]),
        "candidates: 'c02' more than once",
    ),
    "a label is unknown": (verdict([*LABELS, "c04"], [LABELS]), "candidates: unknown label 'c04'"),
    "confirmed without evidence": (
        {**PLAIN, "candidates": [{"label": "c01", "hack": "confirmed"}, *PLAIN["candidates"][1:]]},
        "'c01' is confirmed without evidence",
    ),
    "an empty tier": (verdict(LABELS, [["c01"], [], ["c02", "c03"]]), r"ranking\[1\]: an empty"),
    "an empty tier last": (verdict(LABELS, [LABELS, []]), r"ranking\[1\]: an empty"),
    "nobody is ranked": (verdict(LABELS, []), "ranking: 'c01', 'c02', 'c03' missing"),
    "one is not ranked": (verdict(LABELS, [["c01", "c03"]]), "ranking: 'c02' missing"),
    "twice in a tier": (verdict(LABELS, [["c01", "c01", "c02", "c03"]]), "'c01' more than once"),
    "in two tiers": (verdict(LABELS, [LABELS, ["c03"]]), "ranking: 'c03' more than once"),
    "an unknown label": (verdict(LABELS, [[*LABELS, "c1"]]), "ranking: unknown label 'c1'"),
    "another case": (verdict(LABELS, [["C01", "c02", "c03"]]), "ranking: unknown label 'C01'"),
    "a confirmed hack": (verdict(LABELS, [LABELS], confirmed=["c02"]), "'c02' is a confirmed hack"),
    "too few margins": (
        verdict(LABELS, [["c01"], ["c02"], ["c03"]], margins=["slight"]),
        "one entry a gap between tiers: 2; got 1",
    ),
    "too many margins": (
        verdict(LABELS, [["c01"], ["c02", "c03"]], margins=["slight"] * 2),
        "one entry a gap between tiers: 1; got 2",
    ),
    "a margin for one tier": (verdict(LABELS, [LABELS], margins=["slight"]), "tiers: 0; got 1"),
}


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
@pytest.mark.parametrize("name", UNFIT)
def test_a_verdict_that_does_not_fit(name: str, mode: str) -> None:
    told, message = UNFIT[name]
    with pytest.raises(InvalidVerdict, match=message):
        check(told, LABELS, mode)


def test_who_did_not_pass_is_not_ranked() -> None:
    with pytest.raises(InvalidVerdict, match="ranking: 'c03' did not pass"):
        check(verdict(LABELS, [["c01"], ["c03"]]), ["c01"])
    with pytest.raises(InvalidVerdict, match="ranking: 'c01' missing"):
        check(verdict(LABELS, [["c02"]]), ["c01", "c02"])
    with pytest.raises(InvalidVerdict, match="tiers: 0; got 1"):
        check(verdict(LABELS, [], confirmed=["c01"], margins=["slight"]), ["c01"])


def test_many_labels_in_a_message_are_counted() -> None:
    labels = [f"c{i:03d}" for i in range(100)]
    with pytest.raises(InvalidVerdict, match="'c000', 'c001', 'c002' and 97 more missing"):
        check_verdict(parse_verdict({"candidates": [], "ranking": []}), labels, labels, "rewards")
    long = "\x1b" * 10_000
    with pytest.raises(InvalidVerdict) as caught:
        check(verdict([*LABELS, *(f"{long}{i}" for i in range(9))], [LABELS]))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_mistakes_of_the_caller_are_no_invalid_verdict() -> None:
    fits = verdict(LABELS, [LABELS])
    for passing, mode, message in [
        (LABELS, "reward", "mode must be one of 'rewards', 'advantages'; got 'reward'"),
        (None, "rewards", "passing must be given in rewards mode"),
        (["c01", "c09"], "rewards", "passing must be among labels; not so: 'c09'"),
        (["c01", "c02"], "advantages", "every label is passing; left out: 'c03'"),
        ([], "advantages", "every label is passing; left out: 'c01', 'c02', 'c03'"),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            check(fits, passing, mode)
        assert not isinstance(caught.value, InvalidVerdict)
    with pytest.raises(ValueError, match="labels must be unique; repeated: 'c01'"):
        check_verdict(parse_verdict(fits), ["c01", "c01", "c02", "c03"], LABELS, "rewards")


@pytest.mark.parametrize(
    "call",
    [
        lambda told: check_verdict(told, LABELS, LABELS, "rewards"),
        lambda told: grading.check_citations(told, {}),
        lambda told: grading.candidate_info(told),
        lambda told: grading.group_credit(told, None, "advantages"),
    ],
    ids=["check_verdict", "check_citations", "candidate_info", "group_credit"],
)
def test_what_was_not_parsed_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="verdict must be what parse_verdict gives; got dict"):
        call(verdict(LABELS, [LABELS]))


def test_10_000_tiers_are_answered_at_once() -> None:
    labels = [f"c{i:05d}" for i in range(10_000)]
    told = verdict(labels, [[name] for name in labels], margins=["slight"] * 9_999)
    text = json.dumps(told)
    start = time.perf_counter()
    check_verdict(parse_verdict(text), labels, None, "advantages")
    with pytest.raises(InvalidVerdict, match="unknown label"):
        check_verdict(parse_verdict(text), LABELS, LABELS, "rewards")
    assert time.perf_counter() - start < 2.0


def test_a_verdict_as_arrays() -> None:
    read = parse_verdict(
        verdict([*LABELS, "c04"], [["c03"], ["c01"]], confirmed=["c02"], suspected=["c04"])
    )
    arrays = verdict_arrays(read, ["c04", "c03", "c02", "c01"])
    assert arrays.tiers.tolist() == [-1, 0, -1, 1]
    assert arrays.hacks.tolist() == [False, False, True, False]
    assert arrays.margins.tolist() == [0.25]
    told = {**PLAIN, "ranking": [["c01"], ["c02"], ["c03"]], "margins": ["large", None]}
    assert verdict_arrays(parse_verdict(told), LABELS).margins.tolist() == [1.0, 0.25]
    assert verdict_arrays(parse_verdict(verdict(LABELS, [LABELS])), LABELS).margins.shape == (0,)
    assert verdict_arrays(parse_verdict(verdict(LABELS, [])), LABELS).margins.shape == (0,)


def test_labels_of_arrays_are_those_of_the_verdict() -> None:
    read = parse_verdict(PLAIN)
    for labels in (["c01", "c02"], [*LABELS, "c04"]):
        with pytest.raises(ValueError, match="in one of the two only: 'c0"):
            verdict_arrays(read, labels)
    with pytest.raises(ValueError, match="a label is repeated"):
        verdict_arrays(read, [*LABELS, "c01"])


def test_what_a_verdict_says_of_each_candidate() -> None:
    info = candidate_info(parse_verdict(PLAIN))
    assert list(info) == LABELS
    assert info["c02"] == ("suspected", (Evidence(2, "exit(0)"),), 1)
    assert info["c01"] == ("none", (), 0)
    for told in (
        verdict([*LABELS, "c01"], [LABELS]),
        verdict(LABELS, [LABELS, ["c01"]]),
        verdict(LABELS, [[*LABELS, "c04"]]),
    ):
        with pytest.raises(ValueError, match="judge each label once"):
            candidate_info(parse_verdict(told))
