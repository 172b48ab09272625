"""What the trainer needs to know of a policy: five pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array
from jax.tree_util import Partial

__all__ = ["Apply", "ApplyCached", "Cache", "InitCache", "Params", "Policy", "as_argument"]

Params = Any  # a tree of arrays
Cache = Any  # a tree of arrays, of fixed shapes


class Init(Protocol):
    """Fresh parameters."""

    def __call__(self, key: Array) -> Params: ...


class Apply(Protocol):
    """Logits of the next token at every position.

    Args:
        params: the parameters.
        tokens: (B, T) integers.
        positions: (B, T) integers: the place of each token in its own text, from 0.
        mask: (B, T) booleans, False for padding. A token attends to those tokens at or before its
            own column whose mask is True; what comes out where the mask is False is not used.

    Returns:
        (B, T, V) logits, float32 (float64 for float64 parameters).
    """

    def __call__(self, params: Params, tokens: Array, positions: Array, mask: Array) -> Array: ...


class InitCache(Protocol):
    """An empty cache for ``batch`` rows of up to ``length`` columns, in the parameters' dtype."""

    def __call__(self, params: Params, batch: int, length: int) -> Cache: ...


class ApplyCached(Protocol):
    """The next columns of a batch, after those that the cache holds.

    Arguments as for :class:`Apply`, (B, T) being the new columns, and the cache.

    Returns:
        (B, V) logits after the last column, and the cache that holds the new columns too.
    """

    def __call__(
        self, params: Params, tokens: Array, positions: Array, mask: Array, cache: Cache
    ) -> tuple[Array, Cache]: ...


class Policy(NamedTuple):
    """A language model as pure functions of its parameters. Bring your own, or take a decoder.

    ``apply`` and ``apply_cached`` must agree: the trainer recomputes with one the log-probabilities
    that were sampled with the other, and stops the run where they differ.

    Arrays that are not trained, such as frozen weights, are held by the functions: each is then a
    :class:`jax.tree_util.Partial` that binds them first. Sampler and step hand such arrays to what
    they compile as arguments; an array that a function merely closes over becomes part of the
    compiled program.

    Attributes:
        init: key -> parameters.
        apply: logits at every position, for the training step.
        init_cache: an empty cache.
        apply_cached: logits after the last column, for the sampler.
        vocab_size: V.
    """

    init: Init
    apply: Apply
    init_cache: InitCache
    apply_cached: ApplyCached
    vocab_size: int


def as_argument(function: Callable[..., Any]) -> Partial:
    """A function as an argument of jit: a Partial as it is, with its arrays as leaves."""
    # Around a Partial another one would be opaque, and its arrays constants of the program.
    return function if isinstance(function, Partial) else Partial(function)
