"""Graded solutions: a question a line with several named solutions, as GSM8K publishes them.

Each solution is a row, and the one who wrote it is its policy. Plain questions, with an answer and
no graded solution, are no rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import UNSET, digest
from advlib.adapters._lines import Line
from advlib.adapters._report import FileReport
from advlib.adapters._rows import Row
from advlib.adapters._values import measure

ENVIRONMENT = "gsm8k"  # the data set that comes in this shape; its lines name none


def recognises(record: dict[str, Any]) -> bool:
    """Whether a record is a question with a graded solution."""
    return isinstance(record.get("question"), str) and any(
        isinstance(item, dict) and "is_correct" in item for item in record.values()
    )


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""

    def parse(record: dict[str, Any], line: Line) -> Sequence[Outcome]:
        question = record["question"]
        task = digest(question, record.get("ground_truth"))
        rows = []
        for policy, solution in record.items():
            if not isinstance(solution, dict) or not {"is_correct", "solution"} & set(solution):
                continue
            row = Row(
                environment=ENVIRONMENT,
                task=task,
                group=f"{ENVIRONMENT}/{task}",
                prompt=question,
                policy=policy,
            )
            row.reward, reason = measure(solution.get("is_correct", UNSET))
            rows.append(row.judge(reason))
        return rows

    return FileReader(parse)


FORMAT = Format(
    name="graded_solutions",
    looks_for="an object with `question` and an object that holds `is_correct`",
    decoder=msgspec.json.Decoder(dict[str, Any]),
    recognises=recognises,
    open=open_file,
)
