"""A folder's ``config.json``, field by field: read, fixed, without effect, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from advlib.trainer.llm._rope import Rope, read_rope

__all__ = ["Architecture", "read_architecture", "read_json"]

# The class that each model type is published under.
CLASSES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
GEMMAS = ("gemma", "gemma2", "gemma3_text")

# Nothing that a policy computes depends on these; end tokens are read with the tokenizer.
WITHOUT_EFFECT = frozenset(
    [
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "cache_implementation",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "max_window_layers",
        "model_type",
        "pad_token_id",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    ]
)
# What tunix computes in one way only. Absent and null are that way.
FIXED: dict[str, dict[str, tuple[Any, ...]]] = {
    "qwen2": {"hidden_act": ("silu",), "use_sliding_window": (False,), "use_mrope": (False,)},
    "qwen3": {"hidden_act": ("silu",), "use_sliding_window": (False,), "attention_bias": (False,)},
    "llama": {
        "hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,),
        "pretraining_tp": (1,),
    },
    "gemma": {
        "attention_bias": (False,), "rms_norm_eps": (1e-6,), "tie_word_embeddings": (True,),
        "use_bidirectional_attention": (False,),
    },
    "gemma2": {
        "attention_bias": (False,), "rms_norm_eps": (1e-6,), "tie_word_embeddings": (True,),
        "use_bidirectional_attention": (False,),
    },
    "gemma3_text": {
        "attention_bias": (False,), "rms_norm_eps": (1e-6,), "tie_word_embeddings": (True,),
        "use_bidirectional_attention": (False,), "attn_logit_softcapping": (),
        "final_logit_softcapping": (),
    },
}  # fmt: skip
GEMMA_ROPE = Rope(10_000.0)
GELU = "gelu_pytorch_tanh"


class Architecture(NamedTuple):
    """A decoder, in the terms that all families share.

    Attributes:
        family: the ``model_type``.
        vocab_size: V.
        layers: number of blocks.
        width: D of the residual stream.
        hidden: width of the gated feed-forward part.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: H of each head.
        tied: whether the embedding is the output matrix too.
        norm_eps: added to the mean square in the norms.
        rope: rotary frequencies.
        local_rope: those of layers with a sliding window, in Gemma 3.
        window: columns that a sliding layer sees, in Gemma 2 and 3.
        score_cap: soft cap of attention scores, in Gemma 2.
        logit_cap: soft cap of logits, in Gemma 2.
        max_length: columns that a policy takes at most.
        without_effect: fields of ``config.json`` that no result depends on.
    """

    family: str
    vocab_size: int
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    norm_eps: float
    rope: Rope
    local_rope: Rope | None
    window: int | None
    score_cap: float | None
    logit_cap: float | None
    max_length: int
    without_effect: tuple[str, ...]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: the file is missing, is no JSON, or holds no object.
    """
    try:
        found = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: wanted an object; got {type(found).__name__}")
    return found


def read_architecture(path: Path, *, ignore: Collection[str] = ()) -> Architecture:
    """What a ``config.json`` says, in full.

    Args:
        path: the file.
        ignore: fields to leave unread that are refused otherwise.

    Returns:
        The :class:`Architecture`.

    Raises:
        ValueError: the model type or class is not one of those known; a field is missing, unknown,
            of another kind, or says something that the model would not compute.
    """
    return _Fields(path, read_json(path), ignore).architecture()


class _Fields:
    """The fields of one file; each is taken once, and what is left at the end is refused."""

    def __init__(self, path: Path, fields: Mapping[str, Any], ignore: Collection[str]) -> None:
        self.path = path
        self.ignored = tuple(name for name in fields if name in ignore)
        self.left = {name: value for name, value in fields.items() if name not in ignore}

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.path}: {text}")

    def take(self, name: str, default: Any = None) -> Any:
        value = self.left.pop(name, None)
        return default if value is None else value

    def size(self, name: str, default: int | None = None) -> int:
        value = self.take(name, default)
        if value is None:
            raise self.error(f"{name} is missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"{name} must be a positive integer; got {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.take(name, default)
        if value is not None and (
            not isinstance(value, int | float) or isinstance(value, bool) or not value > 0
        ):
            raise self.error(f"{name} must be a positive number; got {value!r}")
        return None if value is None else float(value)

    def architecture(self) -> Architecture:
        family = self.family()
        gemma = family in GEMMAS
        for name, allowed in FIXED[family].items():
            value = self.take(name)
            if value is not None and value not in allowed:
                wanted = repr(allowed[0]) if allowed else "null"
                raise self.error(
                    f"{name} must be {wanted} for {family}, the only case that is computed; "
                    f"got {value!r}"
                )
        if gemma:
            self.activation()
        width, heads = self.size("hidden_size"), self.size("num_attention_heads")
        kv_heads = self.size("num_key_value_heads", heads)
        # Qwen 3 and Gemma have a head_dim of their own, which no quotient tells.
        own = family == "qwen3" or gemma
        head_dim = self.size("head_dim", None if own else width // heads)
        if heads % kv_heads:
            raise self.error(
                f"num_attention_heads must be a multiple of num_key_value_heads; "
                f"got {heads} and {kv_heads}"
            )
        if head_dim % 2:
            raise self.error(f"head_dim must be even; got {head_dim}")
        layers = self.size("num_hidden_layers")
        rope, local_rope = read_rope(self.path, self.left, family)
        if family in ("gemma", "gemma2") and rope != GEMMA_ROPE:
            raise self.error(
                f"rope_theta must be {GEMMA_ROPE.base:g} for {family}, the only case that is "
                f"computed; got {rope.base:g}"
            )
        window = self.window(family, layers)
        scale = self.number("query_pre_attn_scalar") if family in GEMMAS[1:] else None
        if scale not in (None, head_dim):
            raise self.error(
                f"query_pre_attn_scalar must equal head_dim, {head_dim}, the only case that is "
                f"computed; got {scale:g}"
            )
        longest = self.size("max_position_embeddings")
        if family == "gemma2" and window is not None:
            longest = min(longest, window)  # see _models: every layer sees everything
        capped = family == "gemma2"
        return Architecture(
            family=family,
            vocab_size=self.size("vocab_size"),
            layers=layers,
            width=width,
            hidden=self.size("intermediate_size"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            tied=True if gemma else self.tied(),
            norm_eps=1e-6 if gemma else self.norm_eps(),
            rope=rope,
            local_rope=local_rope,
            window=window,
            score_cap=self.number("attn_logit_softcapping") if capped else None,
            logit_cap=self.number("final_logit_softcapping") if capped else None,
            max_length=longest,
            without_effect=self.rest(family),
        )

    def family(self) -> str:
        family = self.left.get("model_type")
        if family not in CLASSES:
            hint = "; a text-only gemma3_text is read" if family == "gemma3" else ""
            raise self.error(
                f"model_type must be one of {', '.join(CLASSES)}; got {family!r}{hint}"
            )
        named = self.left.get("architectures")
        if named not in (None, [CLASSES[family]]):
            raise self.error(
                f"architectures must be [{CLASSES[family]!r}] for model_type {family}; "
                f"got {named!r}"
            )
        return str(family)

    def activation(self) -> None:
        """Gemma's newer field counts; "gelu" in the older one meant the approximation only once."""
        newer, older = self.take("hidden_activation"), self.take("hidden_act")
        value = newer or older or GELU
        if value != GELU:
            raise self.error(f"the activation must be {GELU!r}; got {value!r}")

    def tied(self) -> bool:
        value = self.take("tie_word_embeddings", False)
        if not isinstance(value, bool):
            raise self.error(f"tie_word_embeddings must be a boolean; got {value!r}")
        return value

    def norm_eps(self) -> float:
        value = self.number("rms_norm_eps")
        if value is None:
            raise self.error("rms_norm_eps is missing")
        return value

    def window(self, family: str, layers: int) -> int | None:
        """The sliding window, once the layers that have one are those that the family computes."""
        kinds = self.take("layer_types")
        every = [self.take(name) for name in ("sliding_window_pattern", "_sliding_window_pattern")]
        if family in ("gemma2", "gemma3_text"):
            period = 2 if family == "gemma2" else 6
            wanted = [
                "full_attention" if (layer + 1) % period == 0 else "sliding_attention"
                for layer in range(layers)
            ]
            if kinds not in (None, wanted) or any(value not in (None, period) for value in every):
                raise self.error(
                    f"every {period}. layer must see everything and the others a window, the only "
                    f"case that is computed; got layer_types {kinds!r}"
                )
            return self.size("sliding_window")
        self.take("sliding_window")
        if kinds not in (None, ["full_attention"] * layers):
            raise self.error(f"layer_types must all be 'full_attention'; got {kinds!r}")
        return None

    def rest(self, family: str) -> tuple[str, ...]:
        unknown = sorted(set(self.left) - WITHOUT_EFFECT)
        if unknown:
            raise self.error(
                f"not known for {family}: {', '.join(unknown)}; nothing is guessed: if no logit "
                f"depends on it, name it in ignore_config"
            )
        return (*sorted(self.left), *self.ignored)
