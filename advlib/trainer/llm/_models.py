"""The models of tunix, and what is computed otherwise than tunix 0.1.7 does.

This file is imported only by functions, since it needs the extra. Layers, norms, embeddings and
parameter names are tunix's. Ours are:

- attention of Llama and Qwen 3: tunix turns by base 1,000,000 whatever the configuration says, and
  knows no stretched frequencies;
- layers with a window in Gemma 2: tunix compares columns with positions, which left padding makes
  differ. Here every layer sees everything, and ``Architecture.max_length`` is the window;
- the loop over the layers: at sampling, logits of the last column alone are computed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from advlib.trainer.llm._config import Architecture
from advlib.trainer.llm._rope import Rope, angles, rotated

with warnings.catch_warnings():
    # tunix imports names that jax has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import nnx
    from tunix.models.gemma import model as gemma
    from tunix.models.gemma3 import model as gemma3
    from tunix.models.llama3 import model as llama3
    from tunix.models.qwen2 import model as qwen2
    from tunix.models.qwen3 import model as qwen3

__all__ = ["LORA_LAYERS", "empty_layers", "model"]

LayerCache = dict[str, Array]
# The matrices that LoRA is added to: all but embeddings and the output matrix.
LORA_LAYERS = (
    r".*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"
    r"|q_einsum|kv_einsum|qkv_einsum|attn_vec_einsum)"
)
# A score that no softmax sees, and finite: a row of padding alone gets no NaN.
MASKED = -2.0e38


def _attended(
    attention: Any, x: Array, turn: tuple[Array, Array], cache: LayerCache | None, mask: Array
) -> tuple[LayerCache | None, Array]:
    """Grouped-query attention over x, or over the cache with x written behind what it holds."""
    q, k, v = attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)
    if hasattr(attention, "q_norm"):
        q, k = attention.q_norm(q), attention.k_norm(k)
    q, k = rotated(q, turn), rotated(k, turn)
    if cache is not None:
        place = (0, cache["end_index"][0], 0, 0)
        k = jax.lax.dynamic_update_slice(cache["k"], k, place)
        v = jax.lax.dynamic_update_slice(cache["v"], v, place)
        cache = {"k": k, "v": v, "end_index": cache["end_index"] + x.shape[1]}
    rows, columns, heads, width = q.shape
    shared = k.shape[2]
    q = q.reshape(rows, columns, shared, heads // shared, width)
    scores = jnp.einsum("btkgh,bskh->bkgts", q, k).astype(jnp.float32) * width**-0.5
    scores = jnp.where(mask[:, None, None], scores, MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(rows, columns, heads, width)
    return cache, attention.o_proj(mixed)


class _LlamaAttention(llama3.Attention):
    def block(
        self, x: Any, segment_pos: Any, cache: Any, attn_mask: Any
    ) -> tuple[LayerCache | None, Array]:
        turn = angles(self.config.rope, self.config.head_dim, segment_pos)
        return _attended(self, x, turn, cache, attn_mask)


class _Qwen3Attention(qwen3.Attention):
    def block(
        self, x: Any, segment_pos: Any, cache: Any, attn_mask: Any, segment_ids: Any = None
    ) -> tuple[LayerCache | None, Array]:
        turn = angles(Rope(self.config.rope_theta), self.config.head_dim, segment_pos)
        return _attended(self, x, turn, cache, attn_mask)


@dataclass(frozen=True)
class _LlamaConfig(llama3.ModelConfig):
    rope: Rope | None = None  # a default only because tunix's fields have some


class _Decoder:
    """The forward pass that all families share."""

    def __call__(
        self,
        tokens: Array,
        positions: Array,
        mask: Array,
        cache: dict[str, LayerCache] | None,
        last_only: bool,
    ) -> tuple[Array, dict[str, LayerCache] | None]:
        """Logits, (B, T, V) or (B, 1, V) of the last column, float32; and the cache."""
        model: Any = self
        x = model.embedder.encode(tokens)
        after = {}
        for i, layer in enumerate(model.layers):
            name = f"layer_{i}"
            kept, x = model.through(layer, x, positions, cache and cache[name], mask)
            after[name] = kept
        x = model.final_norm(x[:, -1:] if last_only else x)
        tied = not hasattr(model, "lm_head")
        logits = model.embedder.decode(x) if tied else model.lm_head(x)
        return model.capped(logits.astype(jnp.float32)), after if cache else None

    def through(self, layer: Any, x: Any, positions: Any, cache: Any, mask: Any) -> Any:
        return layer(x, positions, cache, mask)

    def capped(self, logits: Array) -> Array:
        return logits


class _Llama(_Decoder, llama3.Llama3):
    def __init__(self, config: Any, *, rngs: Any) -> None:
        super().__init__(config, rngs=rngs)
        for layer in self.layers:
            layer.attn = _LlamaAttention(config, rngs=rngs)


class _Qwen3(_Decoder, qwen3.Qwen3):
    def __init__(self, config: Any, *, rngs: Any) -> None:
        super().__init__(config, rngs=rngs)
        for layer in self.layers:
            layer.attn = _Qwen3Attention(config, rngs=rngs)


class _Qwen2(_Decoder, qwen2.Qwen2):
    def through(self, layer: Any, x: Any, positions: Any, cache: Any, mask: Any) -> Any:
        turn = angles(Rope(self.config.rope_theta), self.config.head_dim, positions)
        cos, sin = (part[..., 0, :].astype(x.dtype) for part in turn)
        return layer(x, cache, mask, sin, cos)


class _Gemma(_Decoder, gemma.Gemma):
    def capped(self, logits: Array) -> Array:
        cap = self.final_logits_softcap
        return logits if cap is None else jnp.tanh(logits / cap) * cap


class _Gemma3(_Decoder, gemma3.Gemma3):
    pass


FAMILIES: dict[str, tuple[Any, Any]] = {
    "qwen2": (qwen2, _Qwen2),
    "qwen3": (qwen3, _Qwen3),
    "llama": (llama3, _Llama),
    "gemma": (gemma, _Gemma),
    "gemma2": (gemma, _Gemma),
    "gemma3_text": (gemma3, _Gemma3),
}


def model(architecture: Architecture, dtype: Any, *, remat: bool, rngs: nnx.Rngs) -> nnx.Module:
    """A model with random weights that computes in ``dtype``; call it under ``nnx.eval_shape``.

    Args:
        architecture: the shape.
        dtype: dtype of parameters and activations.
        remat: compute each block again in the backward pass instead of keeping what it holds.
        rngs: where the weights come from.
    """
    a = architecture
    common = {
        "num_layers": a.layers,
        "embed_dim": a.width,
        "hidden_dim": a.hidden,
        "num_heads": a.heads,
        "head_dim": a.head_dim,
        "num_kv_heads": a.kv_heads,
    }
    module, built = FAMILIES[a.family]
    again = module.RematConfig
    common["remat_config"] = again.DECODER if remat else again.NONE
    if a.family in ("qwen2", "qwen3"):
        return built(
            module.ModelConfig(
                **common,
                vocab_size=a.vocab_size,
                rope_theta=a.rope.base,
                norm_eps=a.norm_eps,
                use_tied_embedding=a.tied,
                dtype=dtype,
                param_dtype=dtype,
            ),
            rngs=rngs,
        )
    if a.family == "llama":
        return built(
            _LlamaConfig(
                **common,
                vocab_size=a.vocab_size,
                rope_theta=int(a.rope.base),
                norm_eps=a.norm_eps,
                weight_tying=a.tied,
                rope=a.rope,
            ),
            rngs=rngs,
        )
    if a.family == "gemma3_text":
        assert a.local_rope is not None
        return built(
            module.ModelConfig(
                **common,
                num_embed=a.vocab_size,
                sliding_window_size=a.window,
                local_base_frequency=a.local_rope.base,
                global_base_frequency=a.rope.base,
                local_scale_factor=a.local_rope.factor,
                global_scale_factor=a.rope.factor,
                param_dtype=dtype,
            ),
            rngs=rngs,
        )
    return built(
        module.ModelConfig(
            **common,
            num_embed=a.vocab_size,
            final_logit_softcap=a.logit_cap,
            attn_logits_soft_cap=a.score_cap,
            use_post_attn_norm=a.family == "gemma2",
            use_post_ffw_norm=a.family == "gemma2",
            attention_types=(gemma.AttentionType.GLOBAL,) * a.layers,
        ),
        rngs=rngs,
    )


def empty_layers(
    architecture: Architecture, batch: int, length: int, dtype: Any
) -> dict[str, LayerCache]:
    """Keys and values of no column yet, (B, S, K, H) for each layer."""
    shape = (batch, length, architecture.kv_heads, architecture.head_dim)
    return {
        f"layer_{i}": {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}
        for i in range(architecture.layers)
    }
