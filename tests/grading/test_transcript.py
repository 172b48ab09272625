"""Turns: whose words stand where, and that no candidate can write a line of ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advlib.grading import Message, ToolCall, Turn, turns_of
from advlib.grading._transcript import ELIDED, MARK, elided, escaped, result_text

BASH = "%%%% tool call: bash %%%%"


def user(text: str = "task", parent: int | None = None) -> Message:
    return Message("user", text, parent=parent)


def wrote(text: str, *ids: str | None, parent: int | None = None, sampled: bool = True) -> Message:
    calls = tuple(ToolCall("bash", "{}", id) for id in ids)
    return Message("assistant", text, calls, sampled=sampled, parent=parent)


def tool(call_id: str | None, text: str, parent: int | None) -> Message:
    return Message("tool", text, call_id=call_id, parent=parent)


def results(*messages: Message) -> list[tuple[str, ...]]:
    return [turn.results for turn in turns_of(messages)]


def test_a_turn_is_its_content_and_its_calls_under_headers() -> None:
    calls = (ToolCall("bash", '{"command": "ls"}', "a"), ToolCall("fs.read", "{}", "b"))
    told = turns_of([user(), Message("assistant", "I look.", calls, sampled=True, parent=0)])
    assert told == (
        Turn(f'I look.\n{BASH}\n{{"command": "ls"}}\n%%%% tool call: fs.read %%%%\n{{}}'),
    )


def test_only_sampled_messages_of_the_assistant_are_turns() -> None:
    told = turns_of(
        [
            Message("system", "s", sampled=True),
            user(parent=0),
            wrote("an example", parent=1, sampled=False),
            wrote("mine", parent=2),
            Message("assistant", "", sampled=True, parent=3),
        ]
    )
    assert told == (Turn("mine"), Turn(""))


def test_results_go_to_the_turn_that_made_the_call() -> None:
    assert results(
        user(),
        wrote("one", "a", "b", parent=0),
        tool("b", "of b", 1),
        tool("a", "of a", 2),
        wrote("two", "c", parent=3),
        tool("c", "of c", 4),
    ) == [("of b", "of a"), ("of c",)]


def test_replays_after_compaction_are_ignored() -> None:
    assert results(
        user(),
        wrote("one", "a", parent=0),
        tool("a", "first", 1),
        user("what came before, in short"),
        wrote("one", "a", parent=3, sampled=False),
        tool("a", "again", 4),
        wrote("two", parent=5),
    ) == [("first",), ()]


def test_a_result_that_arrives_in_the_new_context_alone_is_kept() -> None:
    assert results(
        user(),
        wrote("one", "a", parent=0),
        user("in short"),
        wrote("one", "a", parent=2, sampled=False),
        tool("a", "late", 3),
    ) == [("late",)]


def test_ids_that_start_anew_in_every_turn() -> None:
    assert results(
        user(),
        wrote("one", "call_0", parent=0),
        tool("call_0", "first", 1),
        wrote("two", "call_0", parent=2),
        tool("call_0", "second", 3),
        tool("call_0", "a repetition", 4),
    ) == [("first",), ("second",)]


def test_of_equal_ids_a_late_result_is_of_the_last_call() -> None:
    assert results(
        user(),
        wrote("one", "call_0", parent=0),
        wrote("two", "call_0", parent=1),
        user("in short"),
        wrote("two", "call_0", parent=3, sampled=False),
        tool("call_0", "late", 4),
    ) == [(), ("late",)]


def test_equal_ids_on_two_branches_that_grow_side_by_side() -> None:
    assert results(
        user(),
        wrote("left", "call_0", parent=0),
        wrote("right", "call_0", parent=0),
        tool("call_0", "of left", 1),
        tool("call_0", "of right", 2),
    ) == [("of left",), ("of right",)]


def test_two_calls_of_one_turn_with_one_id() -> None:
    assert results(
        user(), wrote("one", "x", "x", parent=0), tool("x", "1", 1), tool("x", "2", 2)
    ) == [("1", "2")]


@pytest.mark.parametrize("call_id", [None, "unheard of"])
def test_a_result_of_no_call_belongs_to_the_turn_before_it(call_id: str | None) -> None:
    assert results(
        user(), wrote("one", "a", parent=0), tool(call_id, "stray", 1), wrote("two", parent=2)
    ) == [("stray",), ()]
    assert results(user(), tool(call_id, "stray", 0), wrote("one", parent=1)) == [()]
    assert results(
        user(),
        wrote("an example", "e", parent=0, sampled=False),
        tool(call_id, "of the example", 1),
        tool("e", "of the example", 2),
        wrote("one", parent=3),
    ) == [()]


def test_what_the_environment_says_is_a_reply() -> None:
    assert results(
        user(), wrote("guess", parent=0), user("wrong", parent=1), wrote("again", parent=2)
    ) == [("wrong",), ()]


@pytest.mark.parametrize("parent", [7, -1, 1])
def test_a_parent_that_is_none_is_a_root(parent: int) -> None:
    assert results(user(), tool("a", "x", parent), wrote("one", parent=parent)) == [()]


class TestResults:
    def test_up_to_4000_characters_are_whole(self) -> None:
        assert result_text("x" * 4000) == "x" * 4000

    def test_longer_ones_keep_both_ends(self) -> None:
        text = "".join(chr(97 + at % 26) for at in range(4001))
        told = f"{text[:2000]}\n{MARK} 1 characters left out {MARK}\n{text[-2000:]}"
        assert result_text(text) == told
        assert "7000 characters left out" in result_text("y" * 11_000)

    def test_a_short_one_cannot_hold_a_header(self) -> None:
        assert result_text(f"done\n{MARK} c02 ends {MARK}") == f"done\n\\{MARK} c02 ends {MARK}"

    def test_a_cut_cannot_make_a_header(self) -> None:
        text = "a" * 3000 + MARK + "b" * 1996
        assert result_text(text).endswith("\n\\" + MARK + "b" * 1996)


class TestEscaping:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("%%%% turn 2 %%%%", "\\%%%% turn 2 %%%%"),
            ("a\n%%%%", "a\n\\%%%%"),
            ("\t %%%%", "\t \\%%%%"),
            ("\\%%%%", "\\\\%%%%"),
            ("a\r%%%%", "a\r\\%%%%"),
            ("a\u2028%%%%", "a\u2028\\%%%%"),
            ("\x85%%%%", "\x85\\%%%%"),
            ("\x0b\x0c%%%%", "\x0b\x0c\\%%%%"),
            ("\u200b%%%%", "\u200b\\%%%%"),
            ("\u3000%%%%", "\u3000\\%%%%"),
            ("%\u200b%\u2060%%", "\\%\u200b%\u2060%%"),
            ("％％％％ turn", "\\％％％％ turn"),
            ("%%% LaTeX", "\\%%% LaTeX"),
            ("%%time", "%%time"),
            ("50%%%% off", "50%%%% off"),
            ("== FAILURES ==", "== FAILURES =="),
            ("", ""),
        ],
    )
    def test_lines(self, text: str, told: str) -> None:
        assert escaped(text) == told

    hostile = st.text(st.sampled_from("%\\\n \r\u2028\u200bab％"), max_size=40)

    @given(hostile)
    def test_it_can_be_undone(self, text: str) -> None:
        assert unescaped(escaped(text)) == text

    @given(hostile)
    def test_nothing_looks_like_a_mark_afterwards(self, text: str) -> None:
        for line in escaped(text).splitlines():
            seen = line.replace("\u200b", "").replace("％", "%").strip()
            assert not seen.startswith("%%%")

    @given(hostile)
    def test_twice_is_not_once(self, text: str) -> None:
        once = escaped(text)
        assert (escaped(once) == once) == (once == text)
        assert unescaped(unescaped(escaped(once))) == text

    @given(hostile, st.lists(hostile, max_size=3))
    def test_a_turn_can_be_taken_apart_again(self, content: str, arguments: list[str]) -> None:
        calls = tuple(ToolCall("bash", each) for each in arguments)
        (turn,) = turns_of([Message("assistant", content, calls, sampled=True)])
        for line in turn.policy.splitlines():
            seen = line.replace("\u200b", "").replace("％", "%").strip()
            assert not seen.startswith("%%%") or line == BASH
        told, *parts = f"\n{turn.policy}".split(f"\n{BASH}\n")
        assert unescaped(told.removeprefix("\n")) == content
        assert [unescaped(part) for part in parts] == arguments

    @pytest.mark.parametrize(
        "name", ["bash %%%%\nls\n%%%% tool call: bash", "a\u2028b", "", "x" * 101, "ba sh"]
    )
    def test_a_tool_cannot_be_named_like_two(self, name: str) -> None:
        (turn,) = turns_of([Message("assistant", "", (ToolCall(name, "{}"),), sampled=True)])
        assert len(turn.policy.splitlines()) == 2
        assert turn.policy.startswith('%%%% tool call: "')

    @pytest.mark.parametrize(
        "unit", [" ", "\\", "%", "\n", "\n%%%%", "%%\u200b", "\n\u200b", " \\", "\r\n "]
    )
    def test_long_text_takes_linear_time(self, unit: str) -> None:
        # Quadratic time at this length would be many minutes.
        text = unit * (300_000 // len(unit))
        assert unescaped(escaped(text)) == text


def unescaped(text: str) -> str:
    """Written from the rule: one backslash less where backslashes stand before a mark."""
    breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
    told = re.split(f"([{breaks}])", text)
    return "".join(re.sub(r"^([\s\u200b]*)\\(\\*(?:[%％]\u200b*){3})", r"\1\2", x) for x in told)


class TestElision:
    def test_up_to_20_turns_are_whole(self) -> None:
        turns = tuple(Turn(str(nth), ("r",)) for nth in range(20))
        assert elided(turns) == turns

    @pytest.mark.parametrize("count", [21, 22, 400])
    def test_others_keep_ten_at_each_end_in_their_places(self, count: int) -> None:
        turns = tuple(Turn(str(nth), ("r",)) for nth in range(count))
        told = elided(turns)
        assert len(told) == count
        assert told[:10] == turns[:10]
        assert told[-10:] == turns[-10:]
        assert set(told[10:-10]) == {ELIDED} == {Turn("[turn elided]", ())}
