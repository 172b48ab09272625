"""Word problems from JSON lines, graded by the number that an answer ends with."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from advlib import _checks
from advlib.trainer.environments._numeric import final_number, marked_answer
from advlib.trainer.environments._protocol import Question, QuestionSet, Score, question_set
from advlib.trainer.environments._wording import around


def jsonl_tasks(
    path: str | os.PathLike[str],
    *,
    question: str = "question",
    answer: str = "answer",
    wording: str = "{}",
    format_penalty: float = 0.0,
) -> QuestionSet:
    r"""Read questions and numeric answers, as GSM8K publishes them.

    A response is right where its final number equals the answer's, exactly: in the last
    ``\boxed{...}``, behind the last ``####``, or, without either, the last number.

    Args:
        path: a file with one JSON object a line.
        question: name of the field with the question.
        answer: name of the field with the answer: a number, or a text that ends with one.
        wording: of the prompt; ``{question}`` is where the question goes, or ``{}`` in a wording
            without that.
        format_penalty: taken off the reward of a response that marks no answer with
            ``\boxed{...}`` or ``####``; rewards then range from -penalty to 1.

    Returns:
        An environment; ids are the file's name and the line.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not such an object; the message names file and line.
    """
    penalty = float(_checks.number("format_penalty", format_penalty, 0))
    frame = around(wording)

    def score(asked: Question, response: str) -> Score:
        return numeric_score(asked.answer, response, penalty)

    found = list(_questions(Path(path), question, answer, frame))
    if not found:
        raise ValueError(f"{path}: holds no question")
    return question_set(found, score)


def numeric_score(answer: Fraction, response: str, format_penalty: float = 0.0) -> Score:
    """1 where the response's final number is the answer, 0 otherwise, less a penalty of form."""
    right = float(final_number(response) == answer)
    marked = marked_answer(response) is not None
    return Score(right if marked else right - format_penalty)


def _questions(
    path: Path, question: str, answer: str, frame: tuple[str, str]
) -> Iterator[Question]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    before, after = frame
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                record = decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise ValueError(f"{where}: wanted a JSON object: {error}") from None
            text = record.get(question)
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{where}: wanted the question as a text in {question!r}")
            yield Question(
                f"{path.name}:{number}",
                f"{before}{text}{after}",
                _answer(record.get(answer), where, answer),
                path.stem,
            )


def _answer(value: Any, where: str, field: str) -> Fraction:
    number = None
    if isinstance(value, str):
        number = final_number(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = final_number(str(value))
    if number is None:
        raise ValueError(f"{where}: wanted a number, or a text that ends with one, in {field!r}")
    return number
