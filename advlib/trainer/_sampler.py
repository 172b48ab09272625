"""Responses from a policy: one compiled function, with a cache, of fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from advlib import _checks
from advlib.trainer._log_probs import NEVER, log_distribution
from advlib.trainer._options import count, dtype_of, promoting, shared, token_ids
from advlib.trainer._placement import cast, replicated
from advlib.trainer._policy import ApplyCached, Cache, InitCache, Params, Policy, as_argument
from advlib.trainer._prompts import Prompts

__all__ = ["FINISH_REASONS", "Sampler", "Samples", "make_sampler"]

FINISH_REASONS = ("stop", "length")
"""Why a response ended: an end token was sampled, or as many tokens as may be."""


class Samples(NamedTuple):
    """What was sampled.

    Attributes:
        tokens: (B, N) int32, padded on the right.
        log_probs: (B, N) float32, of the sampled tokens, 0 beyond the length.
        lengths: (B,) int32, the end token counted.
        finish: (B,) int32, an index into ``FINISH_REASONS``: an end token was sampled, or N tokens
            were.
    """

    tokens: Array
    log_probs: Array
    lengths: Array
    finish: Array

    @property
    def mask(self) -> Array:
        """(B, N) booleans, True for sampled tokens: by the lengths, whatever the tokens are."""
        return jnp.arange(self.tokens.shape[1])[None, :] < self.lengths[:, None]


class Sampler(Protocol):
    """From parameters, prompts and a key to samples."""

    def __call__(self, params: Params, prompts: Prompts, key: Array) -> Samples: ...


class _Progress(NamedTuple):
    step: Array
    tokens: Array
    log_probs: Array
    lengths: Array
    ended: Array
    cache: Cache


def make_sampler(
    policy: Policy,
    *,
    max_prompt: int,
    max_new: int,
    end_tokens: Iterable[int],
    forbidden: Iterable[int] = (),
    temperature: float = 1.0,
    top_p: float = 1.0,
    pad_token: int = 0,
    compute_dtype: Any = None,
    mesh: Mesh | None = None,
) -> Sampler:
    """A jitted sampler, compiled once for each policy and batch size.

    The log-probabilities are those of :func:`log_distribution`: tempered, without the forbidden
    tokens, before ``top_p`` cuts; the training step recomputes them from the same function. With
    ``top_p`` below 1 the samples come from a narrower distribution than their log-probabilities
    say, a bias that no importance ratio shows: train with 1.

    A row's tokens depend on its prompt, on the key and on its number in ``Prompts.rows``, not on
    the rows around it. Sampling stops when every row has ended.

    Args:
        policy: the policy.
        max_prompt: P, the width of the prompts.
        max_new: N, the most tokens of a response.
        end_tokens: ids that end a response.
        forbidden: ids that are never sampled, such as padding.
        temperature: T > 0, or 0 for the most likely token.
        top_p: sample among the most likely tokens that together have at least this probability.
        pad_token: what stands beyond the length; no result depends on it.
        compute_dtype: dtype that the parameters are read in. Default: their own.
        mesh: devices that the batch is split over; the samples are then on all of them.

    Returns:
        ``sample(params, prompts, key) -> Samples``. At temperature 0 the log-probabilities are
        those at temperature 1.

    Raises:
        TypeError, ValueError: a length is not positive, ``end_tokens`` is empty or also forbidden,
            an id is outside the vocabulary, ``temperature`` is negative, ``top_p`` is not in
            (0, 1]; when called, prompts of another width.
    """
    count("max_prompt", max_prompt, 1)
    count("max_new", max_new, 1)
    ends = token_ids("end_tokens", end_tokens, policy.vocab_size)
    barred = token_ids("forbidden", forbidden, policy.vocab_size)
    if not ends:
        raise ValueError("end_tokens must hold at least one id; got none")
    if set(ends) & set(barred):
        raise ValueError(
            f"end_tokens must not be forbidden; these are both: {sorted(set(ends) & set(barred))}"
        )
    temperature = _checks.number("temperature", temperature, 0.0)
    top_p = _checks.number("top_p", top_p, 0.0, 1.0)
    if top_p == 0:
        raise ValueError("top_p must be above 0; temperature=0 takes the most likely token")

    sample = _compiled(
        int(max_prompt), int(max_new), ends, barred, float(temperature), float(top_p),
        int(pad_token), dtype_of(compute_dtype), mesh,
    )  # fmt: skip
    # Arrays that the policy holds come in as arguments; closed over, they would be in the program.
    held = as_argument(policy.init_cache), as_argument(policy.apply_cached)

    def checked(params: Params, prompts: Prompts, key: Array) -> Samples:
        if prompts.tokens.ndim != 2 or prompts.tokens.shape[1] != max_prompt:
            raise ValueError(
                f"prompts must be (B, {max_prompt}) for this sampler; "
                f"got {tuple(prompts.tokens.shape)}"
            )
        with promoting():
            return sample(*held, params, prompts, key)

    return checked


@shared
def _compiled(
    max_prompt: int,
    max_new: int,
    ends: tuple[int, ...],
    barred: tuple[int, ...],
    temperature: float,
    top_p: float,
    pad_token: int,
    compute_dtype: Any,
    mesh: Mesh | None,
) -> Callable[..., Samples]:
    """The jitted sampler of these options, for any policy: its functions are arguments."""

    def draw(logits: Array, keys: Array, step: Array) -> tuple[Array, Array]:
        log_probs = log_distribution(logits, temperature=temperature, forbidden=barred)
        if temperature == 0:
            tokens = jnp.argmax(log_probs, axis=-1)
        else:
            choices = log_probs if top_p == 1 else _nucleus(log_probs, top_p)
            here = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, step)
            tokens = jax.vmap(jax.random.categorical)(here, choices)
        tokens = tokens.astype(jnp.int32)
        return tokens, jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]

    @jax.jit
    def sample(
        init_cache: InitCache,
        apply_cached: ApplyCached,
        params: Params,
        prompts: Prompts,
        key: Array,
    ) -> Samples:
        params = cast(params, compute_dtype)
        lengths = jnp.asarray(prompts.lengths)
        batch = lengths.shape[0]
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.asarray(prompts.rows))
        places = jnp.arange(max_prompt)[None, :] - (max_prompt - lengths)[:, None]
        cache = init_cache(params, batch, max_prompt + max_new)
        logits, cache = apply_cached(
            params, jnp.asarray(prompts.tokens), jnp.maximum(places, 0), places >= 0, cache
        )

        def add(p: _Progress, logits: Array, cache: Cache) -> _Progress:
            drawn, log_probs = draw(logits, keys, p.step)
            new = jnp.where(p.ended, pad_token, drawn)
            return _Progress(
                p.step + 1,
                jax.lax.dynamic_update_slice(p.tokens, new[:, None], (0, p.step)),
                jax.lax.dynamic_update_slice(
                    p.log_probs,
                    jnp.where(p.ended, 0, log_probs).astype(jnp.float32)[:, None],
                    (0, p.step),
                ),
                p.lengths + (~p.ended).astype(jnp.int32),
                p.ended | jnp.isin(drawn, jnp.asarray(ends)),
                cache,
            )

        def goes_on(p: _Progress) -> Array:
            return (p.step < max_new) & ~jnp.all(p.ended)

        def advance(p: _Progress) -> _Progress:
            last = jax.lax.dynamic_slice(p.tokens, (0, p.step - 1), (batch, 1))
            where = (lengths + p.step - 1)[:, None]
            logits, cache = apply_cached(params, last, where, ~p.ended[:, None], p.cache)
            return add(p, logits, cache)

        start = _Progress(
            jnp.zeros((), jnp.int32),
            jnp.full((batch, max_new), pad_token, jnp.int32),
            jnp.zeros((batch, max_new), jnp.float32),
            jnp.zeros(batch, jnp.int32),
            jnp.zeros(batch, bool),
            cache,
        )
        end = jax.lax.while_loop(goes_on, advance, add(start, logits, cache))
        finish = jnp.where(end.ended, 0, 1).astype(jnp.int32)
        return replicated(Samples(end.tokens, end.log_probs, end.lengths, finish), mesh)

    return sample


def _nucleus(log_probs: Array, top_p: float) -> Array:
    """Forbid what lies outside the most likely tokens; those as likely as the last one stay."""
    ordered = jnp.sort(log_probs, axis=-1, descending=True)
    before = jnp.cumsum(jnp.exp(ordered), axis=-1) - jnp.exp(ordered)
    last = jnp.sum(before < top_p, axis=-1, keepdims=True) - 1
    least = jnp.take_along_axis(ordered, last, axis=-1)
    return jnp.where(log_probs >= least, log_probs, NEVER)
