"""What a grader reads of a trace: turns of the policy's own text, and what came back.

Lines that begin with the mark are ours alone. Text of a candidate or of its tools in which a line
begins like one gets a backslash there, so no candidate can end its transcript, open a turn or
answer for a tool.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from advlib.grading._group import Turn

MARK = "%%%%"
"""Opens and closes every line of a transcript that is neither a candidate's nor a tool's."""

RESULT_CHARS = 4000
KEPT_TURNS = 20
ELIDED = Turn("[turn elided]")

# Whatever a reader may take for the end of a line, and what it may not see at the start of one.
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_UNSEEN = (
    r"\x00-\x08\x0e-\x1b\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
)
_LIKE_A_MARK = rf"(?:[%\uff05\ufe6a][{_UNSEEN}]*+){{3}}"
# Possessive repetition: a text of 50 MB must not be scanned twice.
_START = rf"((?:\A|[{_BREAKS}])(?:[^\S{_BREAKS}]|[{_UNSEEN}])*+)"
_TO_ESCAPE = re.compile(rf"{_START}(?=\\*+{_LIKE_A_MARK})")
_PLAIN_NAME = re.compile(r"[\w./:-]{1,100}")


class ToolCall(NamedTuple):
    """A call that the policy wrote.

    Attributes:
        name: the tool.
        arguments: as written, usually JSON.
        id: what the result refers to, None where the file has none.
    """

    name: str
    arguments: str
    id: str | None = None


class Message(NamedTuple):
    """A message of a trace, less what no grader may see.

    Attributes:
        role: "assistant", "tool", or any other word.
        text: the visible content.
        calls: an assistant's calls.
        call_id: of a tool's message, the call that it answers; None where the file has none.
        sampled: the policy wrote it in this trace; a role alone does not say so.
        parent: index of the message before it; None at a root.
    """

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    sampled: bool = False
    parent: int | None = None


def turns_of(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """One turn for each sampled message of the assistant, in the order of the messages.

    A tool's message belongs to the turn that made its call. Each call is answered once: what a
    later context repeats is left out. A tool's message whose call nobody made, or that names none,
    and a user's message belong to the assistant's message right before them on their branch, if
    that was sampled; else they are part of the context and are left out.

    Args:
        messages: a forest, parents before their children.

    Returns:
        The turns; the first is turn 1 of a citation.
    """
    policies: list[str] = []
    results: list[list[str]] = []
    # For each message: the assistant's message at or above it, and the turn that this one is.
    nearest: list[int | None] = []
    turn_of: dict[int, int] = {}
    made: dict[str, int] = {}
    open_calls: Counter[tuple[int, str]] = Counter()
    for at, message in enumerate(messages):
        parent = message.parent
        above = nearest[parent] if parent is not None and 0 <= parent < at else None
        nearest.append(at if message.role == "assistant" else above)
        if message.role == "assistant" and message.sampled:
            turn = turn_of[at] = len(policies)
            policies.append(_policy_text(message))
            results.append([])
            for call in message.calls:
                if call.id is not None:
                    made[call.id] = turn
                    open_calls[turn, call.id] += 1
        elif message.role == "tool":
            to = _answered(message.call_id, above, messages, turn_of, made, open_calls)
            if to is not None:
                results[to].append(result_text(message.text))
        elif message.role == "user" and above in turn_of:
            results[turn_of[above]].append(result_text(message.text))
    return tuple(Turn(*pair) for pair in zip(policies, map(tuple, results), strict=True))


def _answered(
    call_id: str | None,
    above: int | None,
    messages: Sequence[Message],
    turn_of: dict[int, int],
    made: dict[str, int],
    open_calls: Counter[tuple[int, str]],
) -> int | None:
    """The turn that a tool's message belongs to; None where it is context or a repetition."""
    here = None if above is None else turn_of.get(above)
    if call_id is None:
        return here
    # Some servers count calls from 0 in every turn: the nearest one is meant.
    turn = here if here is not None and open_calls[here, call_id] else made.get(call_id)
    if turn is None:
        return here
    if open_calls[turn, call_id] == 0:
        return None
    open_calls[turn, call_id] -= 1
    return turn


def _policy_text(message: Message) -> str:
    parts = [escaped(message.text)] if message.text else []
    for call in message.calls:
        parts += [f"{MARK} tool call: {_one_line(call.name)} {MARK}", escaped(call.arguments)]
    return "\n".join(parts)


def _one_line(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def result_text(text: str) -> str:
    """What came back: whole up to 4000 characters, else its first and its last 2000."""
    if len(text) <= RESULT_CHARS:
        return escaped(text)
    half = RESULT_CHARS // 2
    gap = f"{MARK} {len(text) - RESULT_CHARS} characters left out {MARK}"
    return f"{escaped(text[:half])}\n{gap}\n{escaped(text[-half:])}"


def escaped(text: str) -> str:
    r"""Text in which no line begins like a mark.

    A line that does, after any blanks and any backslashes, gets one more backslash. Taking one away
    from each such line gives the text back, so different texts stay different.
    """
    return _TO_ESCAPE.sub(r"\1\\", text)


def elided(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Of more than 20 turns the first and the last 10; the others keep their place alone."""
    if len(turns) <= KEPT_TURNS:
        return turns
    half = KEPT_TURNS // 2
    return turns[:half] + (ELIDED,) * (len(turns) - KEPT_TURNS) + turns[-half:]
