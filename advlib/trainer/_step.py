"""One update: the loss of a batch, its gradient, and what is worth knowing about both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh

from advlib import _checks, losses
from advlib.losses import Divergence, Loss
from advlib.trainer._batch import Batch
from advlib.trainer._forward import check_parts, forward, split
from advlib.trainer._options import count, dtype_of, finite_number, promoting, shared
from advlib.trainer._placement import cast, constrained
from advlib.trainer._policy import Apply, Params, as_argument

__all__ = [
    "Denominator",
    "TrainState",
    "TrainStep",
    "UpdateMetrics",
    "init_state",
    "make_train_step",
]

Denominator = Literal["tokens", "sequences"] | float


class TrainState(NamedTuple):
    """What an update changes.

    Attributes:
        params: the parameters.
        opt_state: the optimizer's state.
        step: () int32, updates so far.
    """

    params: Params
    opt_state: Any
    step: Array


class UpdateMetrics(NamedTuple):
    """One update in numbers, () float32 each, over the trained tokens of the whole batch.

    Attributes:
        loss: summed loss over the denominator, the divergence from the reference in it.
        grad_norm: global norm of the gradient, before clipping.
        entropy: mean entropy of the distribution, in nats.
        kl_k1: mean of log π_old - log π, an unbiased estimate of KL(π_old ‖ π).
        kl_k3: mean of ρ - 1 - log ρ with ρ = π / π_old: the same in expectation, never negative.
        ratio_min: smallest ρ.
        ratio_mean: mean ρ.
        ratio_max: largest ρ.
        disagreement: largest |log π - log π_old|. On the first update of a batch both are of the
            same parameters, and this is what sampler and trainer disagree by.
        tokens: number of trained tokens.
        sequences: number of sequences with a trained token.
        applied: 1, or 0 where no token was trained or a number was out of bounds, and nothing was
            changed.
    """

    loss: Array
    grad_norm: Array
    entropy: Array
    kl_k1: Array
    kl_k3: Array
    ratio_min: Array
    ratio_mean: Array
    ratio_max: Array
    disagreement: Array
    tokens: Array
    sequences: Array
    applied: Array


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, UpdateMetrics]]


class _Sums(NamedTuple):
    """What micro-batches add up to, and what they are the extremes of."""

    loss: Array
    entropy: Array
    k1: Array
    k3: Array
    ratio: Array
    ratio_min: Array
    ratio_max: Array
    disagreement: Array

    def merged(self, other: _Sums) -> _Sums:
        return _Sums(
            self.loss + other.loss,
            self.entropy + other.entropy,
            self.k1 + other.k1,
            self.k3 + other.k3,
            self.ratio + other.ratio,
            jnp.minimum(self.ratio_min, other.ratio_min),
            jnp.maximum(self.ratio_max, other.ratio_max),
            jnp.maximum(self.disagreement, other.disagreement),
        )


def init_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first update."""
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32))


def make_train_step(
    apply: Apply,
    optimizer: optax.GradientTransformation,
    loss: Loss,
    *,
    denominator: Denominator = "tokens",
    kl_coef: float = 0.0,
    kl: Divergence = losses.kl_k2,
    micro_batches: int = 1,
    temperature: float = 1.0,
    forbidden: Iterable[int] = (),
    compute_dtype: Any = None,
    loss_limit: float = float("inf"),
    disagreement_limit: float = float("inf"),
    mesh: Mesh | None = None,
) -> TrainStep:
    """A jitted update, compiled once for each policy and shape of batch.

        L = (1 / n) Σ_{trained tokens} [ ℓ(log π(y_t), log π_old(y_t), A_t) + β k_t ]
        k_t = k(log π(y_t), log ref(y_t))

    n is counted over the whole batch, so micro-batches and devices change no number but by
    rounding. Gradients are summed in the parameters' dtype, whatever ``compute_dtype`` is.

    Args:
        apply: logits of a policy, such as ``Policy.apply``. Frozen arrays are given to it by a
            :class:`jax.tree_util.Partial`.
        optimizer: an optax transformation; chain ``optax.clip_by_global_norm`` before it to clip.
        loss: per-token losses.
        denominator: n: "tokens", the number of trained tokens; "sequences", the number of sequences
            with a trained token; or a number, 1.0 for the sum.
        kl_coef: β, 0 or more; above 0 every batch needs its ``reference``.
        kl: k, the estimate of the divergence from the reference: ``losses.kl_k2``, whose gradient
            is that of KL(π ‖ ref) on samples of π, or ``losses.kl_k3``, as in GRPO.
        micro_batches: in how many parts the batch is computed one after another, to save memory.
        temperature: as the samples were drawn.
        forbidden: as the samples were drawn.
        compute_dtype: dtype that the parameters are read in, such as bfloat16. Default: their own.
        loss_limit: an update whose loss is larger in size is not applied.
        disagreement_limit: nor is one in which a log-probability differs by more from what the
            sampler said.
        mesh: devices that state and batch are split over, see ``place_state`` and ``place_batch``.

    Returns:
        ``step(state, batch) -> (state, metrics)``. The memory of the state that goes in is reused:
        it is not to be read again. Where no token is trained, where the loss or the norm of the
        gradient is not finite, or beyond a limit, the state comes back as it was.

    Raises:
        TypeError, ValueError: an option is out of range; ``kl`` is ``losses.kl_k1``, which as a
            loss has no gradient on average; when called, the number of micro-batches does not
            divide the batch, or the batch lacks its reference.
    """
    count("micro_batches", micro_batches, 1)
    temperature = _checks.number("temperature", temperature, 0.0)
    kl_coef = finite_number("kl_coef", kl_coef)
    for name, function in (("loss", loss), ("kl", kl)):
        if not callable(function):
            raise TypeError(
                f"{name} must be a function of advlib.losses or like it; got {function!r}"
            )
    if kl_coef and kl is losses.kl_k1:
        raise ValueError(
            "kl must be kl_k2 or kl_k3: kl_k1 as a loss has no gradient on average; subtract it "
            "from the rewards, where it belongs"
        )
    loss_limit = _checks.number("loss_limit", loss_limit, 0.0)
    disagreement_limit = _checks.number("disagreement_limit", disagreement_limit, 0.0)
    barred = tuple(sorted(set(forbidden)))
    if isinstance(denominator, str):
        _checks.one_of("denominator", denominator, ("tokens", "sequences"))
    elif not _checks.number("denominator", denominator, 0.0) > 0:
        raise ValueError(f"denominator must be above 0; got {denominator!r}")

    compiled = _compiled(
        optimizer, loss, denominator, kl_coef, kl if kl_coef else None, int(micro_batches),
        float(temperature), barred, dtype_of(compute_dtype), mesh,
    )  # fmt: skip
    with np.errstate(over="ignore"):  # a limit beyond float32 is none
        limits = np.array([loss_limit, disagreement_limit], np.float32)
    # Arrays that ``apply`` holds come in as arguments; closed over, they would be in the program.
    held = as_argument(apply)

    def checked(state: TrainState, batch: Batch) -> tuple[TrainState, UpdateMetrics]:
        check_parts(micro_batches, batch)
        if kl_coef and batch.reference is None:
            raise ValueError("kl_coef above 0 needs batch.reference; got None")
        with promoting():
            return compiled(held, state, batch, limits)

    return checked


@shared
def _compiled(
    optimizer: optax.GradientTransformation,
    loss: Loss,
    denominator: Denominator,
    kl_coef: float,
    kl: Divergence | None,
    micro_batches: int,
    temperature: float,
    barred: tuple[int, ...],
    compute_dtype: Any,
    mesh: Mesh | None,
) -> Callable[..., tuple[TrainState, UpdateMetrics]]:
    """The jitted update of these options, for any policy: ``apply`` is an argument."""

    def summed(apply: Apply, params: Params, batch: Batch, divisor: Array) -> tuple[Array, _Sums]:
        kept = jnp.asarray(batch.actions)[:, 1:]
        every, log_probs = forward(
            apply, cast(params, compute_dtype), batch, temperature=temperature, forbidden=barred
        )
        old = jnp.where(kept, jnp.asarray(batch.log_probs)[:, 1:], 0).astype(log_probs.dtype)
        advantages = jnp.where(kept, jnp.asarray(batch.advantages)[:, 1:], 0)
        values = _each("loss", loss(log_probs, old, advantages.astype(log_probs.dtype)), kept)
        if kl is not None:
            reference = jnp.where(kept, jnp.asarray(batch.reference)[:, 1:], 0)
            drawn = _each("kl", kl(log_probs, reference.astype(log_probs.dtype)), kept)
            values = values + kl_coef * drawn
        total = losses.constant(values, kept, divisor, axis_name=())
        return total, _told(total, every, log_probs, old, kept)

    gradient = jax.value_and_grad(summed, argnums=1, has_aux=True)

    def step(
        apply: Apply, state: TrainState, batch: Batch, limits: Array
    ) -> tuple[TrainState, UpdateMetrics]:
        actions = jnp.asarray(batch.actions)[:, 1:]
        tokens = jnp.sum(actions).astype(jnp.float32)
        sequences = jnp.sum(jnp.any(actions, axis=1)).astype(jnp.float32)
        numbers = {"tokens": tokens, "sequences": sequences}
        # Of the whole batch, so that micro-batches add up.
        if isinstance(denominator, str):
            divisor = jnp.maximum(numbers[denominator], 1)
        else:
            divisor = jnp.float32(denominator)

        def one(part: Batch) -> tuple[Params, _Sums]:
            (_, sums), grads = gradient(apply, state.params, part, divisor)
            return grads, sums

        if micro_batches == 1:
            grads, sums = one(batch)
        else:
            parts = split(batch, micro_batches)
            first = jax.tree.map(lambda array: array[0], parts)
            rest = jax.tree.map(lambda array: array[1:], parts)

            def more(carry: tuple[Params, _Sums], part: Batch) -> tuple[tuple[Params, _Sums], None]:
                grads, sums = one(part)
                return (jax.tree.map(jnp.add, carry[0], grads), carry[1].merged(sums)), None

            (grads, sums), _ = jax.lax.scan(more, one(first), rest)

        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        total = sums.loss.astype(jnp.float32)
        applied = jnp.isfinite(total) & jnp.isfinite(norm) & (tokens > 0)
        applied &= (jnp.abs(total) <= limits[0]) & (sums.disagreement <= limits[1])
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        new = TrainState(params, opt_state, state.step + 1)
        new = jax.tree.map(lambda after, before: jnp.where(applied, after, before), new, state)
        n = jnp.maximum(tokens, 1)
        metrics = UpdateMetrics(
            total, norm, sums.entropy / n, sums.k1 / n, sums.k3 / n, sums.ratio_min, sums.ratio / n,
            sums.ratio_max, sums.disagreement, tokens, sequences, applied,
        )  # fmt: skip
        return constrained(new, mesh), UpdateMetrics(*(x.astype(jnp.float32) for x in metrics))

    return jax.jit(step, donate_argnums=1)


def _each(name: str, values: Any, kept: Array) -> Array:
    """A value for each token, or an error: one number for all would be spread over them."""
    if jnp.shape(values) != kept.shape:
        raise ValueError(
            f"{name} must return a value for each token, {kept.shape}; got {jnp.shape(values)}"
        )
    return jnp.asarray(values)


def _told(total: Array, every: Array, log_probs: Array, old: Array, kept: Array) -> _Sums:
    every, log_probs = jax.lax.stop_gradient(every), jax.lax.stop_gradient(log_probs)
    shift = log_probs - old
    ratio = jnp.exp(shift)

    def over(values: Array) -> Array:
        return jnp.sum(jnp.where(kept, values, 0))

    return _Sums(
        jax.lax.stop_gradient(total),
        over(-jnp.sum(jnp.exp(every) * every, axis=-1)),
        over(losses.kl_k1(old, log_probs)),
        over(losses.kl_k3(old, log_probs)),
        over(ratio),
        jnp.min(jnp.where(kept, ratio, jnp.inf)),
        jnp.max(jnp.where(kept, ratio, -jnp.inf)),
        jnp.max(jnp.where(kept, jnp.abs(shift), 0)),
    )
