"""What a policy says about the tokens of a batch: as the update reads it, and for a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from advlib import _checks
from advlib.trainer._batch import Batch
from advlib.trainer._log_probs import log_distribution
from advlib.trainer._options import count, dtype_of, promoting, shared
from advlib.trainer._placement import cast, replicated
from advlib.trainer._policy import Apply, Params, as_argument

__all__ = ["LogProbs", "check_parts", "forward", "make_log_probs", "split"]

LogProbs = Callable[[Params, Batch], Array]


def forward(
    apply: Apply, params: Params, batch: Batch, *, temperature: float, forbidden: tuple[int, ...]
) -> tuple[Array, Array]:
    """For the tokens of columns 1 to L - 1: the distributions, and log-probabilities of the tokens.

    Returns:
        (B, L - 1, V) and (B, L - 1); the second is 0 where a token is not trained.
    """
    tokens, mask = jnp.asarray(batch.tokens), jnp.asarray(batch.mask)
    positions = jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=1) - 1, 0)
    logits = apply(params, tokens, positions, mask)[:, :-1]
    every = log_distribution(logits, temperature=temperature, forbidden=forbidden)
    log_probs = jnp.take_along_axis(every, tokens[:, 1:, None], axis=-1)[..., 0]
    # Padding is given a ratio of 1 before any exponential, for the sake of its gradient.
    return every, jnp.where(jnp.asarray(batch.actions)[:, 1:], log_probs, 0)


def make_log_probs(
    apply: Apply,
    *,
    micro_batches: int = 1,
    temperature: float = 1.0,
    forbidden: Iterable[int] = (),
    compute_dtype: Any = None,
    mesh: Mesh | None = None,
) -> LogProbs:
    """Log-probabilities of a batch's tokens under any parameters, such as those of a reference.

        log π(y_t),  of the distribution that :func:`log_distribution` gives

    Args:
        apply: logits of a policy, such as ``Policy.apply``.
        micro_batches: in how many parts the batch is computed one after another, to save memory.
        temperature: as the samples were drawn.
        forbidden: as the samples were drawn.
        compute_dtype: dtype that the parameters are read in. Default: their own.
        mesh: devices that parameters and batch are split over; the result is then on all of them.

    Returns:
        ``log_probs(params, batch) -> (B, L)`` float32 in nats, each in its token's own column, 0
        where ``batch.actions`` is False. Fit for ``Batch.reference``.

    Raises:
        TypeError, ValueError: an option is out of range; when called, the number of micro-batches
            does not divide the batch.
    """
    count("micro_batches", micro_batches, 1)
    temperature = _checks.number("temperature", temperature, 0.0)
    compiled = _compiled(
        int(micro_batches), float(temperature), tuple(sorted(set(forbidden))),
        dtype_of(compute_dtype), mesh,
    )  # fmt: skip
    held = as_argument(apply)

    def checked(params: Params, batch: Batch) -> Array:
        check_parts(micro_batches, batch)
        with promoting():
            return compiled(held, params, batch)

    return checked


@shared
def _compiled(
    micro_batches: int,
    temperature: float,
    barred: tuple[int, ...],
    compute_dtype: Any,
    mesh: Mesh | None,
) -> Callable[..., Array]:
    @jax.jit
    def log_probs(apply: Apply, params: Params, batch: Batch) -> Array:
        read = cast(params, compute_dtype)

        def one(part: Batch) -> Array:
            return forward(apply, read, part, temperature=temperature, forbidden=barred)[1]

        if micro_batches == 1:
            found = one(batch)
        else:
            parts = jax.lax.map(one, split(batch, micro_batches))
            found = jnp.swapaxes(parts, 0, 1).reshape(-1, parts.shape[-1])
        # Nothing is said of column 0, which has no token before it.
        return replicated(jnp.pad(found.astype(jnp.float32), ((0, 0), (1, 0))), mesh)

    return log_probs


def check_parts(micro_batches: int, batch: Batch) -> None:
    """Refuse a batch that cannot be computed in equal parts."""
    if batch.tokens.shape[0] % micro_batches:
        raise ValueError(
            f"micro_batches must divide the batch, {batch.tokens.shape[0]} rows; "
            f"got {micro_batches}"
        )


def split(batch: Batch, parts: int) -> Batch:
    """(parts, B / parts, ...): every ``parts``-th row together, so all devices have some."""
    return jax.tree.map(
        lambda array: jnp.swapaxes(
            jnp.reshape(array, (array.shape[0] // parts, parts, *array.shape[1:])), 0, 1
        ),
        batch,
    )
