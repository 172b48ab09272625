"""The loop: ask, sample, score, compare, update; and a run that can be killed at any step."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh

from advlib.losses import Loss, policy_gradient
from advlib.trainer._batch import Batch, rollout_batch
from advlib.trainer._checkpoints import Checkpoint, Checkpoints
from advlib.trainer._order import question_order
from advlib.trainer._placement import place_batch, place_state
from advlib.trainer._policy import Params, Policy, as_argument
from advlib.trainer._processes import from_first_process, is_first_process
from advlib.trainer._progress import Bar
from advlib.trainer._prompts import Prompts
from advlib.trainer._records import JsonLines, TensorBoard
from advlib.trainer._responses import encode_prompts, responses
from advlib.trainer._rollouts import Advantages, Features, Rollouts, rollout_record
from advlib.trainer._sampler import Sampler, Samples, make_sampler
from advlib.trainer._settings import (
    TrainSettings,
    changed_settings,
    check_settings,
    disagreement_limit,
)
from advlib.trainer._step import TrainState, TrainStep, UpdateMetrics, init_state, make_train_step
from advlib.trainer._stop import TrainingStopped, save_batch, why_stopped
from advlib.trainer._tokenizer import Tokenizer
from advlib.trainer.environments import Environment, score_all

__all__ = ["Trained", "train"]


class Trained(NamedTuple):
    """A run that came to its end.

    Attributes:
        params: the parameters.
        state: parameters, optimizer state and updates made.
        steps: steps done, over all times that the run was resumed.
    """

    params: Params
    state: TrainState
    steps: int


class _Run(NamedTuple):
    """What stays the same from step to step."""

    environment: Environment
    tokenizer: Tokenizer
    settings: TrainSettings
    sampler: Sampler
    update: TrainStep
    advantages: Advantages
    features: Features | None
    kernel_temperature: float
    mesh: Mesh | None
    key: Array


class _Step(NamedTuple):
    """What one step leaves."""

    state: TrainState
    batch: Batch
    rollouts: Rollouts
    metrics: UpdateMetrics
    record: dict[str, Any]
    seconds: dict[str, float]


def train(
    policy: Policy,
    params: Params,
    environment: Environment,
    *,
    tokenizer: Tokenizer,
    advantages: Advantages,
    optimizer: optax.GradientTransformation,
    settings: TrainSettings,
    directory: Path | str,
    loss: Loss = policy_gradient,
    features: Features | None = None,
    kernel_temperature: float = 0.1,
    mesh: Mesh | None = None,
    resume: bool = False,
    progress: bool = True,
    tensorboard: bool = True,
) -> Trained:
    """Train a policy on an environment, one update for each batch of rollouts.

    A step takes the next questions, samples ``group_size`` responses to each, scores them, asks
    ``advantages`` once for the whole batch, and updates. What could not be scored is masked: it is
    in no statistic and in no gradient, and the record counts it.

    The folder holds ``metrics.jsonl`` (a line a step, the same bytes whether or not the run was
    interrupted), ``times.jsonl`` (seconds a step), ``tensorboard/`` and ``checkpoints/``.

    Args:
        policy: what is trained.
        params: its parameters at the start; they are copied.
        environment: questions and their scorer.
        tokenizer: of the policy.
        advantages: takes :class:`Rollouts`, returns (B,) advantages; for instance
            ``lambda r: advlib.leave_one_out(r.rewards, r.group_ids, where=r.where)``. On several
            processes it is called on the first, on the rewards of all.
        optimizer: an optax transformation; chain clipping before it.
        settings: the numbers of the run.
        directory: the run's folder; on several processes one that all see.
        loss: per-token loss.
        features: from (B,) prompts to (B, D) features, for ``Rollouts.features`` and the kernel's
            metrics.
        kernel_temperature: of those metrics.
        mesh: devices that batch and parameters are split over, see :func:`make_mesh`.
        resume: go on after the last checkpoint; without one, start anew.
        progress: show a progress bar.
        tensorboard: write event files.

    Returns:
        :class:`Trained`.

    Raises:
        ImportError: orbax or tensorboardX is not installed; names the extra.
        FileExistsError: the folder holds a run and ``resume`` is False.
        ValueError: a setting is out of range, or is not that of the run to resume; a prompt is
            longer than ``max_prompt``.
        TrainingStopped: a loss, a gradient or a log-probability was out of bounds. The batch is
            saved, and the parameters are those before it.
    """
    check_settings(settings)
    folder = Path(directory)
    if not resume and (folder / "metrics.jsonl").exists():
        raise FileExistsError(f"{folder} holds a run; resume=True goes on with it")
    if is_first_process():
        folder.mkdir(parents=True, exist_ok=True)
    limit = disagreement_limit(settings, params, as_argument(policy.apply))
    sampler = make_sampler(
        policy,
        max_prompt=settings.max_prompt,
        max_new=settings.max_new,
        end_tokens=tokenizer.end_tokens,
        forbidden=tokenizer.forbidden,
        temperature=settings.temperature,
        top_p=settings.top_p,
        pad_token=tokenizer.pad_token,
        compute_dtype=settings.compute_dtype,
        mesh=mesh,
    )
    update = make_train_step(
        policy.apply,
        optimizer,
        loss,
        denominator=settings.denominator,
        micro_batches=settings.micro_batches,
        temperature=settings.temperature,
        forbidden=tokenizer.forbidden,
        compute_dtype=settings.compute_dtype,
        loss_limit=settings.loss_limit,
        disagreement_limit=limit,
        mesh=mesh,
    )
    # The step reuses the memory of its state, and the caller keeps what he gave.
    state = place_state(init_state(jax.tree.map(jnp.copy, params), optimizer), mesh)
    key, start, written, timed = jax.random.key(settings.seed), 0, 0, 0
    with ExitStack() as open_files:
        checkpoints = Checkpoints(folder / "checkpoints", keep=settings.keep_checkpoints)
        open_files.callback(checkpoints.close)
        last = checkpoints.latest() if resume else None
        if last is not None:
            facts = checkpoints.facts(last)
            different = changed_settings(settings, facts["settings"])
            if different:
                raise ValueError(f"{folder} was run with other settings: {'; '.join(different)}")
            state, key, _ = checkpoints.restore(last, state)
            start, written, timed = last, facts["metrics_bytes"], facts["times_bytes"]
        run = _Run(
            environment, tokenizer, settings, sampler, update, advantages, features,
            kernel_temperature, mesh, key,
        )  # fmt: skip
        files = None
        if is_first_process():
            files = _Files(folder, written, timed, start, tensorboard, open_files)
        bar = open_files.enter_context(
            Bar(settings.steps, start, shown=progress and is_first_process())
        )
        for step in range(start, settings.steps):
            done = _step(run, state, step)
            state = done.state
            reason = why_stopped(done.metrics, settings.loss_limit, limit)
            if reason is not None:
                where = save_batch(folder, step, done.batch, done.rollouts)
                raise TrainingStopped(step, reason, where)
            if files is not None:
                files.write(step, done.record, done.seconds)
            bar.advance(done.record)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps:
                facts = {
                    "settings": settings._asdict(),
                    "questions": (step + 1) * settings.questions_per_step,
                    **(files.settled() if files is not None else {}),
                }
                checkpoints.save(step + 1, Checkpoint(state, key, facts))
    return Trained(state.params, state, max(start, settings.steps))


def _step(run: _Run, state: TrainState, step: int) -> _Step:
    settings, clock = run.settings, [time.perf_counter()]
    taken = question_order(
        len(run.environment),
        step * settings.questions_per_step,
        settings.questions_per_step,
        seed=settings.seed,
    )
    asked = run.environment.prompts([int(index) for index in taken])
    questions = tuple(question for question in asked for _ in range(settings.group_size))
    prompts = encode_prompts(run.tokenizer, questions, settings.max_prompt)
    on_devices = Prompts(*place_batch(tuple(prompts), run.mesh))
    samples: Samples = jax.tree.map(
        np.asarray, run.sampler(state.params, on_devices, jax.random.fold_in(run.key, step))
    )
    clock.append(time.perf_counter())

    texts = responses(run.tokenizer, samples)
    rewards, where, reasons = _scored(run.environment, questions, texts)
    clock.append(time.perf_counter())

    rollouts = Rollouts(
        questions,
        texts,
        np.where(where, rewards, np.nan).astype(np.float32),
        np.repeat(np.arange(len(asked), dtype=np.int32), settings.group_size),
        where,
        reasons,
        np.asarray(samples.lengths),
        np.asarray(samples.finish),
    )
    if run.features is not None:
        rollouts = rollouts._replace(features=run.features([q.text for q in questions]))
    clock.append(time.perf_counter())
    given = np.zeros(len(where), np.float32)
    if is_first_process() and where.any():
        given = np.asarray(run.advantages(rollouts), np.float32)
    given = from_first_process(given)
    clock.append(time.perf_counter())

    batch = rollout_batch(prompts, samples, given, where)
    state, metrics = run.update(state, Batch(*place_batch(tuple(batch), run.mesh)))
    metrics = UpdateMetrics(*(np.asarray(value) for value in metrics))  # type: ignore[arg-type]
    clock.append(time.perf_counter())
    record = {
        "step": step,
        "questions": (step + 1) * settings.questions_per_step,
        **rollout_record(rollouts, given, temperature=run.kernel_temperature),
        **{name: float(value) for name, value in metrics._asdict().items()},
    }
    clock.append(time.perf_counter())
    names = ("sample", "score", "features", "advantage", "update", "record")
    spent = np.diff(clock).tolist()
    return _Step(state, batch, rollouts, metrics, record, dict(zip(names, spent, strict=True)))


def _scored(
    environment: Environment, questions: tuple[Any, ...], texts: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Rewards of the whole batch, from one process: a scorer need not answer twice alike."""
    rewards, where = np.zeros(len(texts)), np.zeros(len(texts), bool)
    reasons: tuple[str, ...] = ("",) * len(texts)
    if is_first_process():
        rewards, where, reasons = score_all(environment, questions, texts)
    return from_first_process(rewards.astype(np.float32)), from_first_process(where), reasons


class _Files:
    """What the first process writes."""

    def __init__(
        self,
        folder: Path,
        written: int,
        timed: int,
        step: int,
        tensorboard: bool,
        closing: ExitStack,
    ) -> None:
        self._metrics = JsonLines(folder / "metrics.jsonl", position=written)
        closing.callback(self._metrics.close)
        self._times = JsonLines(folder / "times.jsonl", position=timed)
        closing.callback(self._times.close)
        self._board = None
        if tensorboard:
            self._board = TensorBoard(folder / "tensorboard", step=step)
            closing.callback(self._board.close)

    def write(self, step: int, record: dict[str, Any], seconds: dict[str, float]) -> None:
        self._metrics.write(record)
        self._times.write({"step": step, **seconds})
        if self._board is not None:
            self._board.write(step, {**record, **{f"seconds/{k}": v for k, v in seconds.items()}})

    def settled(self) -> dict[str, int]:
        return {"metrics_bytes": self._metrics.settled(), "times_bytes": self._times.settled()}
