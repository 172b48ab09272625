"""``advlib report`` of an experiment's folder: its record once more, in words or as a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advlib.cli import _output, _show
from advlib.cli._errors import Refusal

RECORD, SPEC, STAGES = "record.json", "spec.json", "stages"


def is_run(path: str) -> bool:
    """Whether a path is the folder of an experiment, one that has ended or one under way."""
    under_way = os.path.isfile(os.path.join(path, SPEC)) and os.path.isdir(
        os.path.join(path, STAGES)
    )
    return under_way or os.path.isfile(os.path.join(path, RECORD))


def report(
    paths: Sequence[str],
    given: Mapping[str, Any],
    *,
    output: str | None,
    html: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Prints, and writes where it is asked to.

    Args:
        paths: one folder.
        given: options that say how to read rollouts, each None unless it was given.
        output: a .json file for the record.
        html: a .html file for the page.
        as_json: print the record instead of tables.
        quiet: print nothing.

    Raises:
        Refusal: there are other paths too, an option is of rollouts, the record is none.
        OSError: a file cannot be read or written.
    """
    from advlib.cli import _experiment_told
    from advlib.cli._experiment_page import page
    from advlib.experiments import SpecError, read_record

    if len(paths) > 1:
        run = next(path for path in paths if is_run(path))
        raise Refusal(f"{run} is the folder of an experiment: it is reported on by itself")
    (folder,) = paths
    for option, value in given.items():
        if value is not None:
            raise Refusal(f"{option} is for rollouts; {folder} is the folder of an experiment")
    record_path = os.path.join(folder, RECORD)
    for path, flag, suffix in ((output, "--output", ".json"), (html, "--html", ".html")):
        if path is not None:
            _output.check(path, [record_path], suffixes=(suffix,), flag=flag)
    try:
        record = read_record(folder)
    except SpecError as error:
        raise Refusal(str(error)) from error
    if output is not None:
        _output.write_text(output, _show.json_text(record) + "\n")
    if as_json:
        _show.print_json(record)
    try:
        if html is not None:
            _output.write_text(html, page(record, Path(folder)))
        if not (as_json or quiet):
            _experiment_told.show(record, folder)
    except SpecError as error:
        raise Refusal(str(error)) from error
    except KeyError as error:
        raise Refusal(
            f"{record_path}: has no {error}: another version of advlib wrote it"
        ) from error
