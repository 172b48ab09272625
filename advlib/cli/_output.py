"""The file that ``advlib score`` writes, and the refusals that come before any work is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from advlib.adapters._write import replacing
from advlib.cli._errors import Refusal
from advlib.cli._summary import Scored

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")
METADATA = b"advlib.score"  # key of the settings in the schema's metadata

# Columns that come first in the file, in this order.
FIRST = (
    "rollout_id",
    "environment",
    "task",
    "group",
    "reward",
    "advantage",
    "baseline",
    "valid",
    "reason",
    "source_file",
    "source_line",
)


def check(
    output: str,
    inputs: Iterable[str],
    *,
    suffixes: tuple[str, ...] = SUFFIXES,
    flag: str = "--output",
) -> None:
    """Refuses what could not be written, before anything is read.

    Raises:
        Refusal: the suffix says no format, the folder is not there or closed, the file is an input.
    """
    path = Path(output)
    if not path.name.endswith(suffixes):
        raise Refusal(f"{flag} {output}: the name must end in {', '.join(suffixes)}")
    if path.is_dir():
        raise Refusal(f"{flag} {output}: that is a folder")
    if not path.parent.is_dir():
        raise Refusal(f"{flag} {output}: the folder {path.parent} is not there")
    if not os.access(path.parent, os.W_OK):
        raise Refusal(f"{flag} {output}: the folder {path.parent} cannot be written to")
    check_not_input(output, inputs, flag=flag)


def check_not_input(output: str, inputs: Iterable[str], *, flag: str = "--output") -> None:
    """Refuses to write over a file that was read, under whatever name.

    Raises:
        Refusal: the output is one of the inputs.
    """
    if not os.path.exists(output):
        return
    for name in inputs:
        if os.path.isfile(name) and os.path.samefile(name, output):
            raise Refusal(f"{flag} {output}: that file is an input ({name})")


def write_text(path: str, text: str) -> None:
    """Writes a text file, whole or not at all.

    Raises:
        OSError: the folder is missing, or the disk is full.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def scored_table(scored: Scored, settings: Mapping[str, Any]) -> pa.Table:
    """One row a rollout, in the order of the files, with the settings in the metadata.

    The columns of the reader follow, without the prompts, so that the file can be scored again.

    Args:
        scored: rollouts and their advantages.
        settings: how they came about; plain JSON values.
    """
    data = scored.data
    # What the file said stays beside what the policy for failures made of it.
    told = [
        None if valid else before or reason
        for reason, valid, before in zip(
            data.reasons, data.valid, data.table["invalid_reason"].to_pylist(), strict=True
        )
    ]
    made = {
        "reward": pa.array(data.rewards, from_pandas=True),  # NaN is null in a file
        "advantage": pa.array(scored.advantages),
        "baseline": pa.array(scored.baselines, from_pandas=True),
        "valid": pa.array(data.valid),
        "reason": pa.array(data.reasons, pa.string()),
        "invalid_reason": pa.array(told, pa.string()),
    }
    names = dict.fromkeys((*FIRST, *data.table.column_names))
    names.pop("prompt", None)
    columns = {name: made[name] if name in made else data.table[name] for name in names}
    kept = dict(data.table.schema.metadata or {})
    kept[METADATA] = json.dumps(dict(settings), allow_nan=False).encode()
    return pa.table(columns).replace_schema_metadata(kept)
