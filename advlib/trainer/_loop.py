"""The loop: ask, sample, score, compare, update; and a run that can be killed at any step."""

from __future__ import annotations

import functools
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from advlib.losses import Divergence, Loss, kl_k2, policy_gradient
from advlib.trainer._checkpoints import Checkpoint, Checkpoints
from advlib.trainer._fingerprint import fingerprint
from advlib.trainer._forward import make_log_probs
from advlib.trainer._placement import place_state
from advlib.trainer._policy import Params, Policy, as_argument
from advlib.trainer._processes import is_first_process
from advlib.trainer._progress import Bar
from advlib.trainer._records import RunFiles
from advlib.trainer._reference import Reference
from advlib.trainer._resume import changed, holds_a_run
from advlib.trainer._rollouts import Advantages, Features
from advlib.trainer._run_step import Run, check_questions, run_step
from advlib.trainer._sampler import make_sampler
from advlib.trainer._settings import (
    TrainSettings,
    changed_settings,
    disagreement_limit,
    plain_settings,
)
from advlib.trainer._step import TrainState, init_state, make_train_step
from advlib.trainer._stop import TrainingStopped, save_batch
from advlib.trainer._tokenizer import Tokenizer, check_vocabulary
from advlib.trainer.environments import Environment

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
    kl: Divergence = kl_k2,
    reference: Params | None = None,
    features: Features | None = None,
    kernel_temperature: float = 0.1,
    mesh: Mesh | None = None,
    resume: bool = False,
    progress: bool = True,
    tensorboard: bool = True,
) -> Trained:
    """Train a policy on an environment, step by step.

    A step takes the next questions, samples ``group_size`` responses to each, scores them, asks
    ``advantages`` once for the whole batch, and makes ``updates_per_batch`` updates. What could not
    be scored is masked: it is in no statistic and in no gradient, and the record counts it.

    The folder holds ``metrics.jsonl`` (a line a step, the same bytes whether or not the run was
    interrupted), ``times.jsonl`` (seconds a step), ``tensorboard/`` and ``checkpoints/``.

    Args:
        policy: what is trained.
        params: its parameters at the start; they are copied. A run that goes on takes its own.
        environment: questions and their scorer.
        tokenizer: of the policy.
        advantages: takes :class:`Rollouts`, returns (B,) advantages; for instance
            ``lambda r: advlib.leave_one_out(r.rewards, r.group_ids, where=r.where)``. On several
            processes it is called on the first, on the rewards of all.
        optimizer: an optax transformation; chain clipping before it.
        settings: the numbers of the run.
        directory: the run's folder; on several processes one that all see.
        loss: per-token loss.
        kl: estimate of the divergence from the reference in the loss, where ``kl_coef`` is above 0;
            see :func:`make_train_step`.
        reference: parameters of the reference, which stay as they are. Default: ``params``, where
            ``kl_coef`` is above 0; with LoRA, whose additions are 0 at the start, the published
            model. Given without ``kl_coef`` it is measured only.
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
        ValueError: a setting is out of range; a setting, the policy, the optimizer, the frozen
            arrays, the reference or the number of questions is not that of the run to resume; a
            prompt of any step is longer than ``max_prompt``; tokenizer and policy have other ids;
            the environment gives another number of questions than it was asked for.
        TrainingStopped: a loss, a gradient or a log-probability was out of bounds. The batch is
            saved, and the parameters are those before it.
    """
    settings = plain_settings(settings)
    check_vocabulary(tokenizer, policy.vocab_size)
    folder = Path(directory)
    if not resume and holds_a_run(folder):
        raise FileExistsError(f"{folder} holds a run; resume=True goes on with it")
    if is_first_process():
        folder.mkdir(parents=True, exist_ok=True)
    held = as_argument(policy.apply)
    limit = disagreement_limit(settings, params, held)
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
    reads: dict[str, Any] = {
        "micro_batches": settings.micro_batches,
        "temperature": settings.temperature,
        "forbidden": tokenizer.forbidden,
        "compute_dtype": settings.compute_dtype,
        "mesh": mesh,
    }
    update = functools.partial(
        make_train_step,
        policy.apply,
        optimizer,
        loss,
        denominator=settings.denominator,
        kl_coef=settings.kl_coef,
        kl=kl,
        loss_limit=settings.loss_limit,
        **reads,
    )
    # After the first update the policy has moved: to disagree with the sampler is then no fault.
    later = (update(disagreement_limit=math.inf), math.inf)
    updates = (
        (update(disagreement_limit=limit), limit),
        *[later] * (settings.updates_per_batch - 1),
    )
    if reference is None and settings.kl_coef:
        reference = params
    beside = None
    if reference is not None:
        fixed_params = place_state(jax.tree.map(jnp.asarray, reference), mesh)
        beside = Reference(fixed_params, make_log_probs(policy.apply, **reads))
    # The step reuses the memory of its state, and the caller keeps what he gave.
    state = place_state(init_state(jax.tree.map(jnp.copy, params), optimizer), mesh)
    fixed = {
        "environment": len(environment),
        "frozen": fingerprint(held),
        "reference": None if beside is None else fingerprint(beside.params),
    }
    key, start = jax.random.key(settings.seed), 0
    facts: dict[str, Any] = {}
    with ExitStack() as open_files:
        checkpoints = Checkpoints(folder / "checkpoints", keep=settings.keep_checkpoints)
        open_files.callback(checkpoints.close)
        last = checkpoints.latest() if resume else None
        if last is not None:
            facts = checkpoints.facts(last)
            different = [*changed_settings(settings, facts["settings"]), *changed(fixed, facts)]
            if different:
                raise ValueError(f"{folder} was run otherwise: {'; '.join(different)}")
            state, key, _ = checkpoints.restore(last, state)
            start = last
        run = Run(
            environment, tokenizer, settings, sampler, updates, beside, advantages, features,
            kernel_temperature, mesh, key,
        )  # fmt: skip
        check_questions(run, start)
        files = None
        if is_first_process():
            files = RunFiles(folder, facts, start, tensorboard, open_files)
        bar = open_files.enter_context(
            Bar(settings.steps, start, shown=progress and is_first_process())
        )
        for step in range(start, settings.steps):
            done = run_step(run, state, step)
            state = done.state
            if done.reason is not None:
                where = save_batch(folder, step, done.batch, done.rollouts)
                raise TrainingStopped(step, done.reason, where)
            if files is not None:
                files.write(step, done.record, done.seconds)
            bar.advance(done.record)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps:
                facts = {
                    "settings": settings._asdict(),
                    "questions": (step + 1) * settings.questions_per_step,
                    **fixed,
                    **(files.settled() if files is not None else {}),
                }
                checkpoints.save(step + 1, Checkpoint(state, key, facts))
    return Trained(state.params, state, max(start, settings.steps))
