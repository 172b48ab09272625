"""A tunix model as the pure functions that the trainer wants."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from advlib.trainer._policy import Params, Policy
from advlib.trainer.llm._config import Architecture

__all__ = ["Lora", "llm_policy", "parameter_shapes"]

Weights = dict[str, Array]


class Lora(NamedTuple):
    """Low-rank additions to every matrix of every block: W + (alpha / rank) A B."""

    rank: int
    alpha: float


class LlmCache(NamedTuple):
    """Keys and values of the columns so far.

    Attributes:
        layers: for each layer the keys and values, (B, S, kv_heads, H) each.
        mask: (B, S) booleans: the column is written and is no padding.
        columns: () int32, how many columns are written.
    """

    layers: dict[str, dict[str, Array]]
    mask: Array
    columns: Array


class _Split(NamedTuple):
    """A model without its values.

    Attributes:
        graph: tunix's module, as flax describes it.
        tree: the structure of its state.
        names: the dotted name of each leaf.
        shapes: shape and dtype of each leaf.
        trained: names of the LoRA parameters, or of all.
    """

    graph: Any
    tree: Any
    names: tuple[str, ...]
    shapes: dict[str, jax.ShapeDtypeStruct]
    trained: frozenset[str]


def _relaxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run tunix's code: it promotes dtypes and ranks, and uses names that flax deprecates."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        with (
            warnings.catch_warnings(),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            warnings.simplefilter("ignore", DeprecationWarning)
            return function(*args, **kwargs)

    return inner


def _build(
    architecture: Architecture, dtype: Any, lora: Lora | None, remat: bool, key: Array
) -> Any:
    from flax import nnx

    from advlib.trainer.llm import _models

    rngs = nnx.Rngs(key)
    built = _models.model(architecture, dtype, remat=remat, rngs=rngs)
    if lora is None:
        return built
    import qwix

    provider = qwix.LoraProvider(
        module_path=_models.LORA_LAYERS, rank=lora.rank, alpha=float(lora.alpha)
    )
    one = jnp.zeros((1, 1), jnp.int32)
    return qwix.apply_lora_to_model(
        built, provider, one, one, jnp.ones((1, 1, 1), bool), None, False, rngs=rngs
    )


@_relaxed
def _split(architecture: Architecture, dtype: Any, lora: Lora | None, remat: bool) -> _Split:
    from flax import nnx

    abstract = nnx.eval_shape(
        lambda key: _build(architecture, dtype, lora, remat, key), jax.random.key(0)
    )
    graph, state = nnx.split(abstract)
    leaves, tree = jax.tree_util.tree_flatten_with_path(state)
    names = tuple(_name(path) for path, _ in leaves)
    shapes = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }
    added = frozenset(name for name in names if name.endswith(("_lora_a", "_lora_b")))
    return _Split(graph, tree, names, shapes, added if lora else frozenset(names))


def _name(path: tuple[Any, ...]) -> str:
    """``layers.0.attn.q_proj.w`` from the path of a leaf; flax ends paths with ``value``."""
    keys = [str(getattr(key, "key", getattr(key, "name", key))) for key in path]
    return ".".join(keys[:-1] if keys[-1] in ("value", ".value") else keys)


def _fresh(key: Array, name: str, shape: tuple[int, ...]) -> Array:
    """A uniform in ±√(6 / fan-in), B zero: at the start nothing is added."""
    if name.endswith("_lora_b"):
        return jnp.zeros(shape, jnp.float32)
    bound = math.sqrt(6 / math.prod(shape[:-1]))
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def _random(architecture: Architecture, known: _Split, key: Array) -> Params:
    """All weights, as tunix draws them."""
    from flax import nnx

    @jax.jit
    @_relaxed
    def drawn(key: Array) -> list[Array]:
        built = _build(architecture, jnp.float32, None, False, key)
        return jax.tree_util.tree_leaves(nnx.state(built))

    return dict(zip(known.names, drawn(key), strict=True))


def parameter_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of the model itself, without LoRA."""
    return {
        name: tuple(shape.shape)
        for name, shape in _split(architecture, jnp.float32, None, False).shapes.items()
    }


def llm_policy(
    architecture: Architecture, base: Weights, *, lora: Lora | None = None, remat: bool = False
) -> Policy:
    """A model as a policy whose parameters are what is trained.

    Args:
        architecture: the shape.
        base: the frozen weights, all of the model's where there is LoRA, and none otherwise. They
            are held by the policy's functions as arguments of a :class:`jax.tree_util.Partial`, so
            that a compiled step takes them in and does not copy them into its program.
        lora: what is added and trained; None trains all weights.
        remat: compute each block again in the backward pass instead of keeping what it holds.

    Returns:
        The policy. Its parameters are a flat dict of arrays, float32 where there is LoRA; they are
        read in the dtype of ``base``.
    """

    @functools.cache
    def split(dtype: Any) -> _Split:
        return _split(architecture, dtype, lora, remat)

    def dtype_of(base: Weights, params: Params) -> Any:
        held = base or params
        return jnp.dtype(held["embedder.input_embedding"].dtype)

    def init(base: Weights, key: Array) -> Params:
        known = split(jnp.dtype(jnp.float32))
        if lora is None:
            return _random(architecture, known, key)
        return {
            name: _fresh(jax.random.fold_in(key, number), name, known.shapes[name].shape)
            for number, name in enumerate(sorted(known.trained))
        }

    @_relaxed
    def forward(
        base: Weights, params: Params, tokens: Array, positions: Array, mask: Array,
        layers: Any, last_only: bool,
    ) -> Any:  # fmt: skip
        from flax import nnx

        dtype = dtype_of(base, params)
        known = split(dtype)
        held = {**base, **{name: value.astype(dtype) for name, value in params.items()}}
        state = jax.tree.unflatten(known.tree, [held[name] for name in known.names])
        return nnx.merge(known.graph, state)(tokens, positions, mask, layers, last_only)

    def fits(columns: int) -> None:
        if columns > architecture.max_length:
            raise ValueError(
                f"this {architecture.family} takes {architecture.max_length} columns at most; "
                f"got {columns}"
            )

    def apply(base: Weights, params: Params, tokens: Array, positions: Array, mask: Array) -> Array:
        columns = tokens.shape[1]
        fits(columns)
        seen = jnp.tril(jnp.ones((columns, columns), bool))[None] & mask[:, None, :]
        logits, _ = forward(base, params, tokens, positions, seen, None, False)
        return logits

    def init_cache(base: Weights, params: Params, batch: int, length: int) -> LlmCache:
        from advlib.trainer.llm import _models

        fits(length)
        layers = _models.empty_layers(architecture, batch, length, dtype_of(base, params))
        return LlmCache(layers, jnp.zeros((batch, length), bool), jnp.zeros((), jnp.int32))

    def apply_cached(
        base: Weights, params: Params, tokens: Array, positions: Array, mask: Array, cache: LlmCache
    ) -> tuple[Array, LlmCache]:
        columns = tokens.shape[1]
        known = jax.lax.dynamic_update_slice(cache.mask, mask, (0, cache.columns))
        places = jnp.arange(known.shape[1])
        seen = places[None, :] <= cache.columns + jnp.arange(columns)[:, None]
        seen = seen[None] & known[:, None, :]
        layers = {
            name: {**layer, "end_index": cache.columns[None]}
            for name, layer in cache.layers.items()
        }
        logits, after = forward(base, params, tokens, positions, seen, layers, True)
        kept = {name: {part: layer[part] for part in "kv"} for name, layer in after.items()}
        return logits[:, -1], LlmCache(kept, known, cache.columns + columns)

    return Policy(
        Partial(init, base),
        Partial(apply, base),
        Partial(init_cache, base),
        Partial(apply_cached, base),
        architecture.vocab_size,
    )
