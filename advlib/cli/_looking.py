"""What ``advlib inspect`` finds: the account of the read, the fields, the coverage, the groups."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from advlib.cli import _summary
from advlib.cli._policy import settings
from advlib.cli._samples import Samples, component_names

RAW_LINES = 200  # lines of each file whose fields are listed, as far as RAW_BYTES reach
RAW_BYTES = 64 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}

# Fields of a raw row that tell its format; none of them is enough to read it.
TELLTALES: Mapping[str, tuple[str, ...]] = {
    "verifiers": ("example_id", "id", "prompt", "completion", "answer", "task", "reward"),
    "prime_rl": ("traces", "nodes", "trace_id", "branches"),
    "nemo_gym": (
        "_ng_task_index",
        "_ng_failure_class",
        "agent_ref",
        "responses_create_params",
        "response",
        "episode_id",
        "failure",
    ),
    "graded_solutions": ("question", "ground_truth"),
    "advlib": ("rollout_id", "group", "valid", "source_file", "source_line"),
}


def files(table: pa.Table) -> list[dict[str, Any]]:
    """The account of each file: its records are its rows and what was reported."""
    from advlib import adapters

    return [
        {
            "path": file.path,
            "format": file.format,
            "bytes": file.bytes,
            "lines": file.lines,
            "blank_lines": file.blank_lines,
            "records": file.records,
            "rows": file.rows,
            "reported": {reason: tally.count for reason, tally in file.reported.items()},
            "notes": {what: tally.count for what, tally in file.notes.items()},
        }
        for file in adapters.report(table).files
    ]


def raw_fields(path: str) -> dict[str, int]:
    """Top-level fields of the first lines of a file, and in how many lines each occurs."""
    with open(path, "rb") as raw:
        start = raw.peek(4)[:4]
        if start == b"PAR1":
            with pq.ParquetFile(raw) as file:
                return dict.fromkeys(file.schema_arrow.names, file.metadata.num_rows)
        codec = _MAGIC.get(start[:2]) or _MAGIC.get(start)
        if codec is None:
            return dict(_tally(raw))
        stream = pa.CompressedInputStream(pa.PythonFile(raw), codec)
        with io.BufferedReader(stream) as lines, contextlib.suppress(OSError):  # damaged or cut
            return dict(_tally(lines))
    return {}


def _tally(lines: io.BufferedReader) -> Counter[str]:
    seen: Counter[str] = Counter()
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    left = RAW_BYTES
    for _ in range(RAW_LINES):
        line = lines.readline(left)
        left -= len(line)
        if not line or left <= 0:
            break
        # A line that cannot be decoded is among the reported ones; its fields cannot be told.
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            seen.update(decoder.decode(line).keys())
    return seen


def why(format: str, fields: Mapping[str, int]) -> list[str]:
    """The fields by which a file was recognised."""
    return [name for name in TELLTALES.get(format, ()) if name in fields]


def columns(table: pa.Table) -> list[dict[str, Any]]:
    """Name, type and nulls of every column."""
    return [
        {"name": name, "type": str(column.type), "nulls": column.null_count}
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def document(data: Samples, warnings: list[str]) -> dict[str, Any]:
    """Everything that ``inspect`` says, as plain JSON values."""
    table = data.table
    found = files(table)
    for entry in found:
        seen = raw_fields(entry["path"])
        entry["recognised_by"] = why(entry["format"] or "", seen)
        entry["raw_fields"] = seen
    return {
        "files": found,
        "columns": columns(table),
        "reward_components": component_names(table),
        "on_failure": settings(data.policy),
        "coverage": _summary.coverage(data),
        "groups": _summary.groups(data),
        "rewards": _summary.statistics(data.rewards[data.valid]),
        "environments": Counter(table["environment"].to_pylist()),
        "warnings": warnings,
    }
