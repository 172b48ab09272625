"""The embedded policy: a small decoder with the parts that current language models have."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from advlib.trainer._options import count
from advlib.trainer._policy import Params, Policy

__all__ = ["DecoderCache", "DecoderConfig", "decoder"]


class DecoderConfig(NamedTuple):
    """Shape of a decoder; the default has 0.8 million parameters and reads bytes.

    Attributes:
        vocab_size: V.
        width: D of the residual stream.
        layers: number of blocks.
        heads: query heads.
        kv_heads: key and value heads; each serves ``heads / kv_heads`` query heads.
        head_width: H of each head, even.
        hidden: width of the gated feed-forward part.
        tied: whether the embedding is the output matrix too.
        rope_base: base of the rotary frequencies.
        norm_eps: added to the mean square in the norms.
    """

    vocab_size: int = 259
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    hidden: int = 384
    tied: bool = True
    rope_base: float = 10_000.0
    norm_eps: float = 1e-6


class DecoderCache(NamedTuple):
    """Keys and values of the columns so far.

    Attributes:
        keys: for each layer (B, S, kv_heads, H).
        values: likewise.
        mask: (B, S) booleans: the column is written and is no padding.
        columns: () int32, how many columns are written.
    """

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    mask: Array
    columns: Array


def decoder(config: DecoderConfig | None = None) -> Policy:
    """A pre-norm decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

        h ← h + W_o attend(norm(h));    h ← h + W_down (silu(W_gate norm(h)) ⊙ W_up norm(h))

    Weights are read in the dtype they come in; norms, attention weights and logits are float32.

    Args:
        config: the shape. Default: ``DecoderConfig()``.

    Returns:
        A :class:`Policy` whose parameters are a plain tree of arrays.

    Raises:
        TypeError, ValueError: a size is not a positive integer, ``heads`` is no multiple of
            ``kv_heads``, or ``head_width`` is odd.
    """
    config = config or DecoderConfig()
    for name in ("vocab_size", "width", "layers", "heads", "kv_heads", "head_width", "hidden"):
        count(name, getattr(config, name), 1)
    if config.heads % config.kv_heads:
        raise ValueError(
            f"heads must be a multiple of kv_heads; got {config.heads} and {config.kv_heads}"
        )
    if config.head_width % 2:
        raise ValueError(f"head_width must be even; got {config.head_width}")
    return _decoder(config)


# One policy a shape, so that runs of one shape share what was compiled.
@lru_cache(maxsize=32)
def _decoder(config: DecoderConfig) -> Policy:
    def init(key: Array) -> Params:
        return _init(config, key)

    def apply(params: Params, tokens: Array, positions: Array, mask: Array) -> Array:
        length = tokens.shape[1]
        seen = jnp.tril(jnp.ones((length, length), bool))[None] & mask[:, None, :]
        h = params["embed"][tokens]
        angles = _angles(config, positions)
        for layer in params["layers"]:
            q, k, v = _heads(config, layer, h, angles)
            h = _block(config, layer, h, _attend(q, k, v, seen))
        return _logits(config, params, h)

    def init_cache(params: Params, batch: int, length: int) -> DecoderCache:
        shape = (batch, length, config.kv_heads, config.head_width)
        zeros = tuple(jnp.zeros(shape, params["embed"].dtype) for _ in range(config.layers))
        mask = jnp.zeros((batch, length), bool)
        return DecoderCache(zeros, zeros, mask, jnp.zeros((), jnp.int32))

    def apply_cached(
        params: Params, tokens: Array, positions: Array, mask: Array, cache: DecoderCache
    ) -> tuple[Array, DecoderCache]:
        columns = tokens.shape[1]
        known = jax.lax.dynamic_update_slice(cache.mask, mask, (0, cache.columns))
        places = jnp.arange(known.shape[1])
        seen = places[None, :] <= cache.columns + jnp.arange(columns)[:, None]
        seen = seen[None] & known[:, None, :]
        h = params["embed"][tokens]
        angles = _angles(config, positions)
        keys, values = [], []
        for layer, old_k, old_v in zip(params["layers"], cache.keys, cache.values, strict=True):
            q, k, v = _heads(config, layer, h, angles)
            keys.append(jax.lax.dynamic_update_slice(old_k, k, (0, cache.columns, 0, 0)))
            values.append(jax.lax.dynamic_update_slice(old_v, v, (0, cache.columns, 0, 0)))
            h = _block(config, layer, h, _attend(q, keys[-1], values[-1], seen))
        cache = DecoderCache(tuple(keys), tuple(values), known, cache.columns + columns)
        return _logits(config, params, h[:, -1]), cache

    return Policy(init, apply, init_cache, apply_cached, config.vocab_size)


def _init(config: DecoderConfig, key: Array) -> Params:
    """Normal weights of deviation 1/√fan-in; those that write to the stream are scaled down."""
    width, inner = config.width, config.heads * config.head_width
    shared = config.kv_heads * config.head_width
    into_stream = (2 * config.layers) ** -0.5
    keys = iter(jax.random.split(key, 2 + 7 * config.layers))

    def normal(rows: int, columns: int, scale: float = 1.0) -> Array:
        return jax.random.normal(next(keys), (rows, columns)) * (scale * rows**-0.5)

    def layer() -> dict[str, Array]:
        return {
            "attention_norm": jnp.ones(width),
            "q": normal(width, inner),
            "k": normal(width, shared),
            "v": normal(width, shared),
            "o": normal(inner, width, into_stream),
            "hidden_norm": jnp.ones(width),
            "gate": normal(width, config.hidden),
            "up": normal(width, config.hidden),
            "down": normal(config.hidden, width, into_stream),
        }

    params: dict[str, Any] = {
        "embed": jax.random.normal(next(keys), (config.vocab_size, width)) * width**-0.5,
        "layers": [layer() for _ in range(config.layers)],
        "norm": jnp.ones(width),
    }
    if not config.tied:
        params["head"] = normal(width, config.vocab_size)
    return params


def _wide(dtype: Any) -> Any:
    """At least float32, where sums are taken."""
    return dtype if dtype == jnp.float64 else jnp.float32


def _norm(config: DecoderConfig, x: Array, scale: Array) -> Array:
    wide = x.astype(_wide(x.dtype))
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    unit = (wide * jax.lax.rsqrt(mean_square + config.norm_eps)).astype(x.dtype)
    return unit * jnp.expand_dims(scale, tuple(range(x.ndim - 1)))


def _angles(config: DecoderConfig, positions: Array) -> tuple[Array, Array]:
    half = config.head_width // 2
    frequencies = config.rope_base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions.astype(jnp.float32)[..., None, None] * frequencies[None, None, None]
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(x: Array, angles: tuple[Array, Array]) -> Array:
    """Rotary positions: the two halves of each head are the two coordinates."""
    cos, sin = (angle.astype(x.dtype) for angle in angles)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _heads(
    config: DecoderConfig, layer: dict[str, Array], h: Array, angles: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    x = _norm(config, h, layer["attention_norm"])
    q, k, v = (
        (x @ layer[name]).reshape(*x.shape[:2], -1, config.head_width) for name in ("q", "k", "v")
    )
    return _rotate(q, angles), _rotate(k, angles), v


def _attend(q: Array, k: Array, v: Array, seen: Array) -> Array:
    attended = jax.nn.dot_product_attention(q, k, v, mask=seen[:, None])
    return attended.reshape(*q.shape[:2], -1)


def _block(config: DecoderConfig, layer: dict[str, Array], h: Array, attended: Array) -> Array:
    h = h + attended @ layer["o"]
    x = _norm(config, h, layer["hidden_norm"])
    return h + (jax.nn.silu(x @ layer["gate"]) * (x @ layer["up"])) @ layer["down"]


def _logits(config: DecoderConfig, params: Params, h: Array) -> Array:
    x = _norm(config, h, params["norm"])
    head = params["embed"].T if config.tied else params["head"]
    return jnp.matmul(x, head, preferred_element_type=_wide(x.dtype))
