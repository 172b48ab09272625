"""The numbers of a run."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from advlib import _checks
from advlib.trainer._options import count, dtype_of, finite_number
from advlib.trainer._step import Denominator

__all__ = ["TrainSettings", "changed_settings", "disagreement_limit", "plain_settings"]

# May differ when a run goes on: they change no number of the steps already done.
FREE = ("steps", "checkpoint_every", "keep_checkpoints", "loss_limit", "disagreement_limit")
COUNTS = (
    "steps", "questions_per_step", "group_size", "max_prompt", "max_new", "micro_batches",
    "updates_per_batch", "checkpoint_every", "keep_checkpoints",
)  # fmt: skip
NUMBERS = ("temperature", "top_p", "loss_limit")
# Largest difference of a log-probability that is rounding. Measured on the default decoder: 1e-5
# in single precision, 0.02 in bfloat16; a token forbidden in one of the two only makes 0.69.
SINGLE, HALF = 1e-3, 0.1


class TrainSettings(NamedTuple):
    """How a run samples, trains and saves.

    Attributes:
        steps: updates.
        questions_per_step: questions of a step.
        group_size: responses to each.
        max_prompt: P, the width of prompts in tokens.
        max_new: N, the most tokens of a response.
        temperature: of the sampler, above 0.
        top_p: of the sampler; below 1 the gradient is biased, see :func:`make_sampler`.
        denominator: of the loss, see :func:`make_train_step`.
        kl_coef: of the divergence from the reference in the loss; 0 leaves it out.
        updates_per_batch: updates from each batch of rollouts; from the second on, ratios are not 1
            and the loss should clip them, see :func:`advlib.losses.ppo_clip`.
        micro_batches: parts that a batch is computed in.
        compute_dtype: name of the dtype that parameters are read in, such as "bfloat16"; None for
            their own.
        seed: of the questions' order and of the samples.
        checkpoint_every: steps between checkpoints; one is always made at the end.
        keep_checkpoints: how many of the latest stay.
        loss_limit: a loss larger in size stops the run.
        disagreement_limit: a log-probability by which sampler and trainer differ more, at the first
            update of a batch, stops the run; infinity never does. None: 1e-3, or 0.1 where
            parameters or frozen weights are read in less than 32 bits.
    """

    steps: int
    questions_per_step: int
    group_size: int
    max_prompt: int
    max_new: int
    temperature: float = 1.0
    top_p: float = 1.0
    denominator: Denominator = "tokens"
    kl_coef: float = 0.0
    updates_per_batch: int = 1
    micro_batches: int = 1
    compute_dtype: str | None = None
    seed: int = 0
    checkpoint_every: int = 10
    keep_checkpoints: int = 2
    loss_limit: float = 1e4
    disagreement_limit: float | None = None


def plain_settings(settings: TrainSettings) -> TrainSettings:
    """Settings as JSON has them; what is out of range is refused before anything is done."""
    plain: dict[str, Any] = {name: count(name, getattr(settings, name), 1) for name in COUNTS}
    for name in NUMBERS:
        plain[name] = float(_checks.number(name, getattr(settings, name), 0.0))
    plain["kl_coef"] = finite_number("kl_coef", settings.kl_coef)
    plain["seed"] = count("seed", settings.seed, 0)
    if plain["seed"] >= 2**32:
        # Of a larger one the random keys see the last 32 bits alone.
        raise ValueError(f"seed must be below 2**32; got {settings.seed}")
    if not plain["temperature"] > 0:
        raise ValueError("temperature must be above 0: the greedy answer has no gradient to follow")
    if settings.disagreement_limit is not None:
        limit = _checks.number("disagreement_limit", settings.disagreement_limit, 0.0)
        plain["disagreement_limit"] = float(limit)
    if not isinstance(settings.denominator, str):
        plain["denominator"] = float(_checks.number("denominator", settings.denominator, 0.0))
    if settings.compute_dtype is not None:
        plain["compute_dtype"] = dtype_of(settings.compute_dtype).name
    rows = plain["questions_per_step"] * plain["group_size"]
    if rows % plain["micro_batches"]:
        raise ValueError(
            f"micro_batches must divide the batch, {rows} rows; got {plain['micro_batches']}"
        )
    return settings._replace(**plain)


def disagreement_limit(settings: TrainSettings, params: Any, held: Any) -> float:
    """The limit of a run: as it is set, or by the narrowest dtype that weights are read in."""
    if settings.disagreement_limit is not None:
        return settings.disagreement_limit
    read = held if settings.compute_dtype is not None else (params, held)
    dtypes = {array.dtype for array in jax.tree.leaves(read)}
    if settings.compute_dtype is not None:
        dtypes.add(dtype_of(settings.compute_dtype))
    half = any(jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 for dtype in dtypes)
    return HALF if half else SINGLE


def changed_settings(now: TrainSettings, then: dict[str, Any]) -> list[str]:
    """Which settings would change the numbers of a run that goes on."""
    before = {**TrainSettings._field_defaults, **then}
    return [
        f"{name} was {before.get(name)!r} and is {getattr(now, name)!r}"
        for name in now._fields
        if name not in FREE and before.get(name) != getattr(now, name)
    ]
