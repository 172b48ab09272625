"""Tables without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from advlib.adapters import FileReport, ReadReport, schema


def table_of(rows: Sequence[dict[str, Any]], *, group_size: int | None = None) -> pa.Table:
    """A table as a reader makes it; what a row leaves out is valid, in one group, of one file."""
    full = []
    for line, row in enumerate(rows, 1):
        usual = {
            "rollout_id": f"r{line}",
            "environment": "env",
            "task": "t",
            "group": "g",
            "reward": 0.0,
            "valid": row.get("invalid_reason") is None,
            "format": "advlib",
            "source_file": "made.jsonl",
            "source_line": line,
        }
        full.append(dict.fromkeys(schema.SCHEMA.names) | usual | row)
    table = pa.Table.from_pylist(full, schema=schema.SCHEMA)
    account = ReadReport([FileReport("made.jsonl", rows=len(full), group_size=group_size)])
    return table.replace_schema_metadata({b"advlib.read": msgspec.json.encode(account)})
