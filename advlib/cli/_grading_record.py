"""What a grading was asked to do, on disk, so that only the same grading goes on in its folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from advlib.cli._errors import Refusal
from advlib.cli._grading_lock import NAME as LOCK
from advlib.cli._output import write_text
from advlib.cli._show import json_text, plain

RUN, JOURNAL, GRADES, SUMMARY = "run.json", "journal.jsonl", "grades.jsonl", "summary.json"
LINES, TABLE = "annotations.jsonl", "annotations.parquet"
NAMES = (RUN, JOURNAL, GRADES, SUMMARY, LINES, TABLE)


def inputs(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Each input file with its size and the SHA-256 of its content.

    Raises:
        OSError: a file cannot be read.
    """
    return [
        {"path": path, "bytes": os.path.getsize(path), "sha256": sha256(path)} for path in paths
    ]


def sha256(path: str) -> str:
    """The SHA-256 of a file's content.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_folder(folder: str) -> None:
    """Refuses a folder of other things, before anything is put into it.

    Raises:
        Refusal: it holds files, and no record of a grading.
        OSError: it cannot be read.
    """
    if not os.path.isdir(folder) or os.path.exists(os.path.join(folder, RUN)):
        return
    others = sorted({*os.listdir(folder)} - {LOCK, *_unfinished(folder)})
    if others:
        raise Refusal(f"{folder}: holds {plain(others[0])} and no {RUN}: name a new folder")


def _unfinished(folder: str) -> list[str]:
    """Names under which `replacing` had begun one of our files when its process was killed."""
    ours = re.compile(rf"\.({'|'.join(map(re.escape, NAMES))})\.[0-9a-f]{{8}}\.tmp")
    return [name for name in os.listdir(folder) if ours.fullmatch(name)]


def begin(folder: str, record: Mapping[str, Any], *, restart: bool) -> bool:
    """Make the folder this grading's, and say whether an earlier run of it goes on.

    Args:
        folder: it is there, and the caller holds its lock.
        record: ``settings`` and ``inputs`` are compared; the rest is only kept.
        restart: remove what an earlier run left, whatever it was asked to do.

    Raises:
        Refusal: the folder holds something else, or another grading; the message says what differs.
        OSError: it cannot be read or written.
    """
    check_folder(folder)
    for name in _unfinished(folder):
        os.unlink(os.path.join(folder, name))
    path = os.path.join(folder, RUN)
    if os.path.exists(path):
        before = _read(path)
        if restart:
            for name in reversed(NAMES):  # the record goes last: without it the rest is not known
                if os.path.exists(os.path.join(folder, name)):
                    os.unlink(os.path.join(folder, name))
        elif different := list(_differences(before, record)):
            raise Refusal(
                f"{folder}: an earlier run was asked for something else: {'; '.join(different)}; "
                "name another folder, or begin anew with --restart"
            )
        else:
            return True
    write_text(path, json_text(dict(record)) + "\n")
    return False


class _Record(msgspec.Struct):
    settings: dict[str, Any]
    inputs: list[dict[str, Any]]


def _read(path: str) -> _Record:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Record)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal(f"{path}: no record of a grading: {error}; name a new folder") from None


def _differences(before: _Record, now: Mapping[str, Any]) -> Iterator[str]:
    """What an earlier run was asked for, and what this one is."""
    old, new = before.settings, now["settings"]
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield f"{name} was {_told(old.get(name))} and is {_told(new.get(name))}"
    was = {str(file.get("path")): file.get("sha256") for file in before.inputs}
    files = {file["path"]: file["sha256"] for file in now["inputs"]}
    for name in dict.fromkeys((*files, *was)):
        if name not in was:
            yield f"{name} is new"
        elif name not in files:
            yield f"{name} is not read any more"
        elif was[name] != files[name]:
            yield f"{name} has changed"
    if list(files) != list(was) and set(files) == set(was):
        yield "the files come in another order"


def _told(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return plain(text if len(text) <= 120 else text[:117] + "...")
