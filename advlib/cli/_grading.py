"""What ``advlib grade`` does, between its options and what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from advlib import grading
from advlib.adapters.episodes import index_episodes
from advlib.cli import _grading_privileged as privileged
from advlib.cli import _grading_record as record
from advlib.cli._errors import Refusal, one_of
from advlib.cli._grading_build import build
from advlib.cli._grading_journal import Journal
from advlib.cli._grading_lock import locked
from advlib.cli._grading_pass import Options, Pass
from advlib.cli._grading_plan import Plan
from advlib.cli._grading_progress import bar
from advlib.cli._grading_summary import document
from advlib.cli._output import write_text
from advlib.cli._read import patiently
from advlib.cli._show import count, json_text, plain
from advlib.grading import Grader, HttpGrader, ReplayGrader

MODES = ("rewards", "advantages")
STATISTICS = ("traces", "candidates")
REASONS = ("stale", "timeout", "error", "invalid")


class Request(NamedTuple):
    """The options of ``advlib grade``; `server` holds those of ``--grader http``."""

    paths: tuple[str, ...]
    grader: str
    output: str
    mode: str
    server: Mapping[str, Any]
    privileged: tuple[str, ...]
    privileged_by_task: str | None
    max_concurrent: int
    timeout: float
    f_min: float
    lambda_max: float
    statistics: str
    step: int | None
    max_off_policy_steps: int | None
    format: str
    reward: str | None
    limit: int | None
    retry: tuple[str, ...]
    restart: bool
    stop_after: int
    max_fallbacks: float | None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while grading; its text says what is kept."""


def run(request: Request) -> dict[str, Any]:
    """Grades what is not graded yet, and writes what follows from all of it.

    Returns:
        The summary, as it is written.

    Raises:
        Refusal, FormatError, OSError: something cannot be used as asked, or the grader cannot.
        Interrupted: Ctrl-C; the journal holds every group that was finished.
    """
    started = time.monotonic()
    _check(request)
    secrets = privileged.texts(request.privileged, request.privileged_by_task)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        grader, identity = _grader(request)
    part = None if request.reward == "reward" else request.reward
    # Its own files are no input.
    reader = functools.partial(index_episodes, leave_out=request.output, component=part)
    index, told = patiently(reader, request.paths, request.format, reward_key=part)
    told += [str(one.message) for one in caught]
    with index:
        settings = {name: getattr(request, name) for name in ("f_min", "lambda_max", "statistics")}
        mode: Any = request.mode
        plan = Plan(index, index.groups[: request.limit], mode, secrets, settings)
        told += secrets.unused(index.groups, index.tasks.values())
        asked = {
            "advlib": version("advlib"),
            "settings": _settings(request, identity, secrets),
            "inputs": record.inputs([file.path for file in index.report.files]),
        }
        os.makedirs(request.output, exist_ok=True)
        with locked(request.output):
            resumed = record.begin(request.output, asked, restart=request.restart)
            with Journal(os.path.join(request.output, record.JOURNAL)) as journal:
                before = len(journal)
                passed = _grade(plan, grader, journal, request)
                built = build(plan, passed.entry, request.output)
            summary = document(asked, plan, built, told)
            summary["groups"]["graded_earlier"] = passed.counts["in the journal"]
            summary["stopped"] = passed.stopped and passed.stopped._asdict()
            summary["warnings"] += _warnings(request, summary, journal, before if resumed else 0)
            summary["seconds"] = round(time.monotonic() - started, 3)
            summary["output"] = request.output
            path = os.path.join(request.output, record.SUMMARY)
            write_text(path, json_text(summary) + "\n")
    return summary


def too_many_fallbacks(request: Request, summary: Mapping[str, Any]) -> bool:
    """Whether the run gave up, or a larger share fell back than ``--max-fallbacks`` lets pass."""
    groups = summary["groups"]
    if summary["stopped"] is not None:
        return True
    wanted = groups["graded"] + sum(groups["fallbacks"].values())
    if request.max_fallbacks is None or not wanted:
        return False
    return bool(sum(groups["fallbacks"].values()) > request.max_fallbacks * wanted)


def _check(request: Request) -> None:
    """Refuses options that contradict each other, before anything is read."""
    one_of(request.mode, MODES, "--mode")
    one_of(request.statistics, STATISTICS, "--statistics")
    for reason in request.retry:
        one_of(reason, REASONS, "--retry: the reason")
    try:
        grading.check_config(
            {
                name: getattr(request, name)
                for name in (
                    "mode",
                    "f_min",
                    "lambda_max",
                    "timeout",
                    "max_concurrent",
                    "max_off_policy_steps",
                )
            }
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise Refusal(f"--{name.replace('_', '-')} {rest}") from None
    if (request.step is None) != (request.max_off_policy_steps is None):
        raise Refusal(
            "--step and --max-off-policy-steps are given together: both say what is stale"
        )
    if not request.output:
        raise Refusal("--output: wanted a folder; the name is empty")
    if os.path.exists(request.output) and not os.path.isdir(request.output):
        raise Refusal(f"--output {request.output}: wanted a folder; that is a file")
    record.check_folder(request.output)


def _grader(request: Request) -> tuple[Grader, dict[str, Any]]:
    """The grader, and what makes it the same grader when the command is run again."""
    kind, colon, path = request.grader.partition(":")
    given = {name: value for name, value in request.server.items() if value is not None}
    if kind == "replay" and colon and path:
        if flags := [_flag(name) for name in given if name != "max_retries"]:
            raise Refusal(f"{flags[0]} is an option of --grader http")
        try:
            return ReplayGrader(path), {"kind": "replay", "sha256": record.sha256(path)}
        except ValueError as error:
            raise Refusal(str(error)) from None
    if request.grader != "http":
        raise Refusal(f"--grader {request.grader}: wanted http or replay:FILE")
    for name in ("base_url", "model"):
        if name not in given:
            raise Refusal(f"--grader http needs {_flag(name)}")
    try:
        grader = HttpGrader(timeout=min(request.timeout, 600.0), **given)
    except (ImportError, ValueError) as error:
        named = "|".join(request.server)
        raise Refusal(re.sub(rf"\b({named})\b", lambda m: _flag(m[0]), str(error))) from None
    same = ("base_url", "model", "temperature", "max_tokens")
    return grader, {"kind": "http", **{name: given.get(name) for name in same}}


def _settings(
    request: Request, grader: Mapping[str, Any], secrets: privileged.Texts
) -> dict[str, Any]:
    """What decides about a group; how many there are, at once, how long and how often does not."""
    names = (
        "mode", "f_min", "lambda_max", "statistics", "step", "max_off_policy_steps",
        "format", "reward",
    )  # fmt: skip
    return {
        **{name: getattr(request, name) for name in names},
        "grader": dict(grader),
        "privileged": list(secrets.told),
    }


def _grade(plan: Plan, grader: Grader, journal: Journal, request: Request) -> Pass:
    stop_after = request.stop_after
    if isinstance(grader, ReplayGrader) and stop_after:
        stop_after = sys.maxsize  # a group that was not recorded costs nothing and says nothing
    options = Options(
        request.max_concurrent,
        request.timeout,
        request.step,
        request.max_off_policy_steps,
        stop_after,
        request.retry,
        rename=isinstance(grader, HttpGrader),
    )

    async def everything(passing: Pass) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(grader, HttpGrader):
                await stack.enter_async_context(grader)
            await passing.run(grader)

    with bar(len(plan.keys)) as progress:
        passing = Pass(plan, journal, options, progress=progress)
        try:
            asyncio.run(everything(passing))
        except KeyboardInterrupt:
            kept = count(len(journal), "group")
            raise Interrupted(
                f"interrupted; {plain(journal.path)} holds {kept}, and the same command goes on"
            ) from None
    return passing


def _warnings(
    request: Request, summary: Mapping[str, Any], journal: Journal, earlier: int
) -> list[str]:
    """What whoever started the run should know."""
    found = []
    groups = summary["groups"]
    fallbacks = sum(groups["fallbacks"].values())
    if journal.dropped:
        found.append(
            f"{journal.path}: a last line that was torn, {journal.dropped:,} bytes, is gone"
        )
    if (stopped := summary["stopped"]) is not None:
        in_a_row = " in a row" if stopped["errors"] > 1 else ""
        found.append(
            f"the grader failed for {count(stopped['errors'], 'group')}{in_a_row}, and no further "
            f"one was asked; the last time with: {plain(stopped['last'])}; what has no verdict has "
            "its credit without one and is not recorded, so that the same command tries it again"
        )
    if fallbacks:
        told = ", ".join(f"{n:,} {reason}" for reason, n in groups["fallbacks"].items())
        share = fallbacks / (fallbacks + groups["graded"])
        found.append(
            f"{count(fallbacks, 'group')} of {fallbacks + groups['graded']:,} fell back to credit "
            f"without a grader ({told}; {share:.0%})"
        )
        for one in summary["first_fallbacks"]:
            found.append(f"group {one['group']}: {one['reason']}: {one['detail']}")
    if not fallbacks and not groups["graded"]:
        unlike = " with different rewards" if request.mode == "rewards" else ""
        found.append(f"nothing was graded: no group has two candidates{unlike}")
    if earlier and not groups["graded_earlier"] and fallbacks + groups["graded"]:
        found.append(f"{journal.path}: none of its entries fits the groups as they are read now")
    return found


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
