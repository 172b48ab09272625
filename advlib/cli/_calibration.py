"""What ``advlib calibrate`` does, between its options and what it prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from advlib import adapters
from advlib.cli import _gate, _kernels, _output, _pairs, _summary, _tasks
from advlib.cli._advice import ENOUGH, advice
from advlib.cli._errors import Refusal, one_of
from advlib.cli._policy import settings as policy_settings
from advlib.cli._read import read
from advlib.cli._samples import samples
from advlib.cli._show import count
from advlib.diagnostics import FailurePolicy

USUAL = 0.1  # the temperature that advice and gates look at, where it is among those asked for
METHODS = ("auto", "rao_blackwell", "resampling", "residual")


class Request(NamedTuple):
    """The options of ``advlib calibrate``."""

    paths: tuple[str, ...]
    kernels: tuple[str, ...]
    temperatures: tuple[float, ...]
    batch: int
    fit: str | None
    resamples: int
    seed: int
    method: str
    gate: str | None
    gate_on: str
    gate_metrics: str | None
    format: str
    reward: str
    policy: FailurePolicy
    output: str | None
    html: str | None


class Result(NamedTuple):
    """What came out.

    Attributes:
        document: everything that is said, as plain JSON values.
        tasks: the table that was looked at.
        pairs: of tasks, by the name of a kernel.
    """

    document: dict[str, Any]
    tasks: _tasks.Tasks
    pairs: dict[str, _pairs.Pairs]


def run(request: Request) -> Result:
    """Reads, estimates, and writes where an output is named.

    Raises:
        Refusal, FormatError, OSError: something cannot be used as asked.
    """
    _check(request)
    spec = _gate.read(request.gate, request.gate_metrics) if request.gate else None
    key = None if request.reward == "reward" else request.reward
    table, told = read(request.paths, request.format, reward_key=key)
    data = samples(
        table,
        group_by=_tasks.KEY,
        reward=request.reward,
        policy=request.policy,
    )
    found = _tasks.tasks(data)
    method, why_not = _method(found, request)
    # A task without a measurement has no part in anything, and may be without a prompt.
    kernels = _features(found, request)
    main = USUAL if USUAL in request.temperatures else request.temperatures[0]
    estimated = [
        _estimates(found, kernel, request, method) if why_not is None else [] for kernel in kernels
    ]
    usable = np.flatnonzero(found.counts > 0)
    drawn = _pairs.draw(len(usable), np.random.default_rng([request.seed, 2]))
    pairs = {
        kernel.name: pair
        for kernel in kernels
        if (pair := _pairs.compare(kernel.features[usable], found.means[usable], drawn))
    }
    document = {
        **_settings(request, main),
        "files": [file.path for file in adapters.report(table).files],
        "coverage": _summary.coverage(data),
        "tasks": {
            "count": data.num_groups,
            "with_two_or_more": int((found.counts >= 2).sum()),
            "with_one": int((found.counts == 1).sum()),
            "with_none": int((found.counts == 0).sum()),
        },
        "rewards": _summary.statistics(data.rewards[data.valid]),
        "method": method if why_not is None else None,
        "not_estimated": why_not,
        "kernels": [
            _kernel_document(kernel, rows, pairs.get(kernel.name))
            for kernel, rows in zip(kernels, estimated, strict=True)
        ],
        "gate": None,
        "warnings": [*told, *_tasks.notes(found), *_few(estimated)],
    }
    document["advice"] = advice(document)
    if spec is not None:
        document["gate"] = _gate.judge(spec, document, on=request.gate_on)
    return Result(document, found, pairs)


def _check(request: Request) -> None:
    one_of(request.method, METHODS, "--method")
    for path, flag, suffix in (
        (request.output, "--output", ".json"),
        (request.html, "--html", ".html"),
    ):
        if path is not None:
            others = [p for p in (request.gate, request.gate_metrics, request.fit) if p]
            _output.check(path, [*request.paths, *others], suffixes=(suffix,), flag=flag)
    for name in request.kernels:
        if not name.endswith(".npy"):
            one_of(name, (*_kernels.TEXT, "FILE.npy"), "the kernel")
    text = {"tfidf", "words"} & set(request.kernels)
    if request.fit is not None and not text:
        raise Refusal("--fit is for the kernels tfidf and words; nothing else has to be fitted")
    if request.gate is None and request.gate_metrics is not None:
        raise Refusal("--gate-metrics needs --gate")


def _method(found: _tasks.Tasks, request: Request) -> tuple[str, str | None]:
    """How to estimate, and why it cannot be done."""
    twice, once = int((found.counts >= 2).sum()), int((found.counts >= 1).sum())
    method, size = request.method, request.batch
    if method == "auto":
        # The first has less noise, unless it would leave out most of the tasks.
        method = "rao_blackwell" if twice >= size and 2 * twice >= once else "residual"
    there = once if method == "residual" else twice
    if there >= size:
        return method, None
    what = "a measured reward" if method == "residual" else "two measured rewards"
    have = f"{count(there, 'task')} of {len(found.counts):,} {'has' if there == 1 else 'have'}"
    why = f"a batch of {size} needs {size} tasks with {what}, and {have} that"
    if there >= 2:
        why += f"; --batch {there} is the largest that they can tell about"
    return method, why


def _features(found: _tasks.Tasks, request: Request) -> list[_kernels.Kernel]:
    used = found.counts > 0
    wanted = set(request.kernels) & set(_kernels.TEXT)
    texts = _tasks.texts(found, used) if wanted and used.any() else []
    kernels = []
    corpus = None
    for name in request.kernels:
        if name not in _kernels.TEXT:
            kernels.append(_kernels.embeddings(name, len(found.counts)))
        elif texts:
            if corpus is None and name != "length":
                corpus = _kernels.corpus(request.fit, texts, "the prompts of these tasks")
            kernels.append(_kernels.kernel(name, texts, corpus or _kernels.Corpus((), "")))
    return kernels


def _estimates(
    found: _tasks.Tasks, kernel: _kernels.Kernel, request: Request, method: str
) -> list[Any]:
    from advlib import diagnostics

    return list(
        diagnostics.effective_batch_by_temperature(
            found.rewards,
            kernel.features,
            temperatures=request.temperatures,
            batch_size=request.batch,
            num_resamples=request.resamples,
            seed=request.seed,
            method=method,  # type: ignore[arg-type]
        )
    )


def _few(estimated: list[list[Any]]) -> list[str]:
    used = next((row.num_tasks for rows in estimated for row in rows), ENOUGH)
    if used >= ENOUGH:
        return []
    return [
        f"{used} tasks: below {ENOUGH} a ratio says little about other tasks, and far below its "
        "interval is too narrow"
    ]


def _settings(request: Request, main: float) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "advlib": version("advlib"),
        "batch_size": request.batch,
        "num_resamples": request.resamples,
        "seed": request.seed,
        "temperatures": [_plain(t) for t in request.temperatures],
        "temperature": _plain(main),
        "fit": request.fit,
        "reward": request.reward,
        "on_failure": policy_settings(request.policy),
    }


def _kernel_document(
    kernel: _kernels.Kernel, rows: list[Any], pairs: _pairs.Pairs | None
) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "title": kernel.title,
        "features": kernel.told,
        "correlation": None if pairs is None else pairs.correlation,
        "estimates": [
            {name: _plain(value) for name, value in row._asdict().items()} for row in rows
        ],
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN is null, infinity a word."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value


def estimate(document: Mapping[str, Any], kernel: str, temperature: Any) -> dict[str, Any] | None:
    """What was found for a kernel at a temperature."""
    for entry in document["kernels"]:
        for row in entry["estimates"] if entry["name"] == kernel else ():
            if row["temperature"] == temperature:
                found: dict[str, Any] = row
                return found
    return None
