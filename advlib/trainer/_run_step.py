"""One step of a run: ask, sample, score, compare, update, and what there is to say of it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

from advlib import _checks
from advlib.trainer._batch import Batch, rollout_batch
from advlib.trainer._order import question_order
from advlib.trainer._placement import place_batch
from advlib.trainer._processes import from_first_process, is_first_process
from advlib.trainer._prompts import Prompts
from advlib.trainer._reference import Reference, reference_record, response_kl, under_reference
from advlib.trainer._responses import asked, encode_prompts, responses
from advlib.trainer._rollouts import Advantages, Features, Rollouts, rollout_record
from advlib.trainer._sampler import Sampler, Samples
from advlib.trainer._settings import TrainSettings
from advlib.trainer._step import TrainState, TrainStep, UpdateMetrics
from advlib.trainer._stop import why_stopped
from advlib.trainer._tokenizer import Tokenizer
from advlib.trainer.environments import Environment, score_all

__all__ = ["Done", "Run", "check_questions", "run_step"]


class Run(NamedTuple):
    """What stays the same from step to step; each update with its limit of disagreement."""

    environment: Environment
    tokenizer: Tokenizer
    settings: TrainSettings
    sampler: Sampler
    updates: tuple[tuple[TrainStep, float], ...]
    reference: Reference | None
    advantages: Advantages
    features: Features | None
    kernel_temperature: float
    mesh: Mesh | None
    key: Array


class Done(NamedTuple):
    """What one step leaves; a reason where an update was out of bounds."""

    state: TrainState
    batch: Batch
    rollouts: Rollouts
    record: dict[str, Any]
    seconds: dict[str, float]
    reason: str | None


def run_step(run: Run, state: TrainState, step: int) -> Done:
    """Take the step's questions through to the updated state."""
    settings, clock = run.settings, _Clock()
    taken = question_order(
        len(run.environment),
        step * settings.questions_per_step,
        settings.questions_per_step,
        seed=settings.seed,
    )
    different = asked(run.environment, taken.tolist())
    questions = tuple(question for question in different for _ in range(settings.group_size))
    prompts = encode_prompts(run.tokenizer, questions, settings.max_prompt)
    on_devices = Prompts(*place_batch(tuple(prompts), run.mesh))
    samples: Samples = jax.tree.map(
        np.asarray, run.sampler(state.params, on_devices, jax.random.fold_in(run.key, step))
    )
    clock("sample")
    every = None
    if run.reference is not None:
        every = under_reference(run.reference, prompts, samples, run.mesh)
        clock("reference")

    texts = responses(run.tokenizer, samples)
    rewards, where, reasons = _scored(run.environment, questions, texts)
    clock("score")

    rollouts = Rollouts(
        questions,
        texts,
        np.where(where, rewards, np.nan).astype(np.float32),
        np.repeat(np.arange(len(different), dtype=np.int32), settings.group_size),
        where,
        reasons,
        np.asarray(samples.lengths),
        np.asarray(samples.finish),
    )
    if run.features is not None:
        rollouts = rollouts._replace(features=run.features([q.text for q in questions]))
    if every is not None:
        rollouts = rollouts._replace(reference_kl=response_kl(every))
    clock("features")
    given = np.zeros(len(where), np.float32)
    if is_first_process() and where.any():
        told = _checks.column("advantages", run.advantages(rollouts), "float")
        given = np.asarray(told, np.float32)
    given = from_first_process(given)
    clock("advantage")

    batch = rollout_batch(prompts, samples, given, where)
    if every is not None:
        batch = batch._replace(reference=every.reference)
    state, metrics, reason = _updated(run, state, batch)
    clock("update")
    record = {
        "step": step,
        "questions": (step + 1) * settings.questions_per_step,
        **rollout_record(rollouts, given, temperature=run.kernel_temperature),
        **{name: float(value) for name, value in metrics._asdict().items()},
        **({} if every is None else reference_record(batch)),
    }
    clock("record")
    return Done(state, batch, rollouts, record, clock.seconds, reason)


def _updated(
    run: Run, state: TrainState, batch: Batch
) -> tuple[TrainState, UpdateMetrics, str | None]:
    """All updates of a batch; the numbers of the last one, the disagreement of the first."""
    placed = place_batch(batch, run.mesh)
    told, reason = [], None
    for number, (update, limit) in enumerate(run.updates, 1):
        state, metrics = update(state, placed)
        told.append(UpdateMetrics(*(np.asarray(value) for value in metrics)))  # type: ignore[arg-type]
        if not told[-1].applied:
            reason = why_stopped(told[-1], run.settings.loss_limit, limit)
            if reason is not None and len(run.updates) > 1:
                reason = f"update {number} of {len(run.updates)}: {reason}"
            break
    return state, told[-1]._replace(disagreement=told[0].disagreement), reason


def _scored(
    environment: Environment, questions: tuple[Any, ...], texts: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Rewards of the whole batch, from one process: a scorer need not answer twice alike."""
    rewards, where = np.zeros(len(texts)), np.zeros(len(texts), bool)
    reasons: tuple[str, ...] = ("",) * len(texts)
    if is_first_process():
        rewards, where, reasons = score_all(environment, questions, texts)
    return from_first_process(rewards.astype(np.float32)), from_first_process(where), reasons


def check_questions(run: Run, start: int) -> None:
    """Refuse a prompt that does not fit before the first step, not hours later."""
    settings, size = run.settings, len(run.environment)
    if size < 1:
        raise ValueError("the environment must hold at least one question; got none")
    number = (settings.steps - start) * settings.questions_per_step
    if number <= 0:
        return
    places = range(size)
    if number < 2 * size:  # more places hold a whole pass
        first = start * settings.questions_per_step
        places = np.unique(question_order(size, first, number, seed=settings.seed)).tolist()
    for at in range(0, len(places), 256):
        questions = asked(run.environment, places[at : at + 256])
        encode_prompts(run.tokenizer, questions, settings.max_prompt)


class _Clock:
    """Seconds since the last call, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now
