"""Weights from safetensors files: every tensor is used once, and every parameter is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from advlib.trainer._options import needed
from advlib.trainer.llm._config import read_json

__all__ = ["read_weights", "shards"]

Shape = tuple[int, ...]
Place = Callable[[np.ndarray], jax.Array]
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FLOATS = ("F64", "F32", "F16", "BF16")
# Written by old versions of transformers, and computed from the configuration.
COMPUTED = re.compile(r"(.*\.)?rotary_emb\.inv_freq")


class Layout(NamedTuple):
    """How published tensors become a parameter.

    Attributes:
        shape: of each published tensor, from the parameter's.
        built: the parameter, from the published tensors and its shape.
    """

    shape: Callable[[Shape], Shape]
    built: Callable[[list[np.ndarray], Shape], np.ndarray]


def _per_head(array: np.ndarray, shape: Shape) -> np.ndarray:
    heads, width, head_dim = shape
    return array.reshape(heads, head_dim, width).transpose(0, 2, 1)


SAME = Layout(lambda s: s, lambda a, s: a[0])
TRANSPOSED = Layout(lambda s: (s[1], s[0]), lambda a, s: a[0].T)
# (D, N, H): what goes in, heads, width of a head; published as (N H, D).
INTO_HEADS = Layout(lambda s: (s[1] * s[2], s[0]), lambda a, s: a[0].T.reshape(s))
# (N, H, D); published as (D, N H).
FROM_HEADS = Layout(lambda s: (s[2], s[0] * s[1]), lambda a, s: a[0].T.reshape(s))
# (N, D, H); published as (N H, D).
PER_HEAD = Layout(lambda s: (s[0] * s[2], s[1]), lambda a, s: _per_head(a[0], s))
# (2 or 3, N, D, H): several of these, one behind the other.
STACKED = Layout(
    lambda s: (s[1] * s[3], s[2]), lambda a, s: np.stack([_per_head(part, s[1:]) for part in a])
)

MLP = {
    f"mlp.{name}.kernel": (TRANSPOSED, f"mlp.{name}")
    for name in ("gate_proj", "up_proj", "down_proj")
}
LAYER: dict[str, tuple[Any, ...]] = {
    **MLP,
    **{
        f"attn.{name}.w": (INTO_HEADS, f"self_attn.{name}")
        for name in ("q_proj", "k_proj", "v_proj")
    },
    "attn.o_proj.w": (FROM_HEADS, "self_attn.o_proj"),
    **{f"attn.{x}_norm.w": (SAME, f"self_attn.{x}_norm") for x in "qk"},
    "input_layernorm.w": (SAME, "input_layernorm"),
    "post_attention_layernorm.w": (SAME, "post_attention_layernorm"),
}
GEMMA_LAYER: dict[str, tuple[Any, ...]] = {
    **MLP,
    "attn.attn_vec_einsum.w": (FROM_HEADS, "self_attn.o_proj"),
    "attn.q_einsum.w": (PER_HEAD, "self_attn.q_proj"),
    "attn.kv_einsum.w": (STACKED, "self_attn.k_proj", "self_attn.v_proj"),
    "attn.qkv_einsum.w": (STACKED, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn._query_norm.scale": (SAME, "self_attn.q_norm"),
    "attn._key_norm.scale": (SAME, "self_attn.k_norm"),
    "pre_attention_norm.scale": (SAME, "input_layernorm"),
    "post_attn_norm.scale": (SAME, "post_attention_layernorm"),
    "post_attention_norm.scale": (SAME, "post_attention_layernorm"),
    "pre_ffw_norm.scale": (SAME, "pre_feedforward_layernorm"),
    "post_ffw_norm.scale": (SAME, "post_feedforward_layernorm"),
}
OUTSIDE: dict[str, tuple[Any, ...]] = {
    "embedder.input_embedding": (SAME, "model.embed_tokens.weight"),
    "final_norm.w": (SAME, "model.norm.weight"),
    "final_norm.scale": (SAME, "model.norm.weight"),
    "lm_head.w": (TRANSPOSED, "lm_head.weight"),
}


def published(name: str, family: str) -> tuple[Layout, tuple[str, ...]]:
    """The layout of a parameter, and the tensors that it is published as."""
    if name in OUTSIDE:
        layout, *tensors = OUTSIDE[name]
        return layout, tuple(tensors)
    _, layer, inner = name.split(".", 2)
    bias = re.fullmatch(r"attn\.([qkv])_bias", inner)
    if bias:
        return SAME, (f"model.layers.{layer}.self_attn.{bias[1]}_proj.bias",)
    table = GEMMA_LAYER if family.startswith("gemma") else LAYER
    layout, *tensors = table[inner]
    if family == "gemma" and inner == "pre_ffw_norm.scale":
        tensors = ["post_attention_layernorm"]  # Gemma 1 has no norm behind its attention
    return layout, tuple(f"model.layers.{layer}.{tensor}.weight" for tensor in tensors)


def shards(folder: Path) -> dict[str, Path]:
    """The file that holds each tensor.

    Raises:
        ValueError: there are no safetensors, only formats that run code when read; several files
            and no index; a file of the index is missing; names are missing or given twice.
        ImportError: safetensors is not installed.
    """
    index = folder / INDEX
    if index.exists():
        mapping = read_json(index).get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise ValueError(f"{index}: weight_map must be an object with a file for each tensor")
        return _from_index(folder, index, mapping)
    found = sorted(path for path in folder.glob("*.safetensors"))
    if not found:
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise ValueError(
                f"{folder}: no safetensors, only {pickles[0]}; reading a pickle runs the code in "
                f"it: convert the weights with save_pretrained(..., safe_serialization=True)"
            )
        raise ValueError(f"{folder}: no {SINGLE} and no {INDEX}")
    if [path.name for path in found] != [SINGLE]:
        raise ValueError(
            f"{folder}: wanted {SINGLE} or {INDEX}; got {', '.join(path.name for path in found)}"
        )
    return dict.fromkeys(_names(found[0]), found[0])


def _from_index(folder: Path, index: Path, mapping: Mapping[str, Any]) -> dict[str, Path]:
    for name, file in mapping.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(f"{index}: {name}: wanted the name of a file beside it; got {file!r}")
    found: dict[str, Path] = {}
    for file in sorted(set(mapping.values())):
        path = folder / file
        if not path.is_file():
            raise ValueError(f"{index}: {file} is missing")
        listed = {name for name, where in mapping.items() if where == file}
        inside = set(_names(path))
        if listed != inside:
            raise ValueError(
                f"{path}: the tensors inside and those that {INDEX} lists differ: "
                f"{_some(listed ^ inside)}"
            )
        found.update(dict.fromkeys(inside, path))
    return found


def _names(path: Path) -> list[str]:
    safetensors = needed("safetensors", "load_llm", "llm")
    try:
        with safetensors.safe_open(path, "numpy") as file:
            return list(file.keys())
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file: {error}") from None


def _some(names: set[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more


def read_weights(
    folder: Path, wanted: Mapping[str, Shape], family: str, dtype: Any, place: Place
) -> dict[str, jax.Array]:
    """The parameters of a model, one tensor after another.

    Args:
        folder: where the safetensors are.
        wanted: name and shape of each parameter.
        family: the ``model_type``.
        dtype: what each is cast to on the host.
        place: puts a host array onto its devices.

    Returns:
        One array for each name of ``wanted``.

    Raises:
        ValueError: as :func:`shards`; a tensor is missing, left over, of the wrong shape, no
            floating-point number; an output matrix differs from the embedding it should share.
    """
    files = shards(folder)
    used: set[str] = set()
    params = {}
    for name, shape in wanted.items():
        layout, tensors = published(name, family)
        missing = [tensor for tensor in tensors if tensor not in files]
        if missing:
            raise ValueError(f"{folder}: no tensor {missing[0]}, which {family} needs")
        parts = [_tensor(files[tensor], tensor, layout.shape(shape)) for tensor in tensors]
        params[name] = place(np.ascontiguousarray(layout.built(parts, shape)).astype(dtype))
        used.update(tensors)
    left = {name for name in files if name not in used and not COMPUTED.fullmatch(name)}
    if "lm_head.weight" in left:
        _check_tied(files, wanted["embedder.input_embedding"])
        left.remove("lm_head.weight")
    if left:
        raise ValueError(f"{folder}: tensors that no parameter of {family} takes: {_some(left)}")
    return params


def _tensor(path: Path, name: str, shape: Shape) -> np.ndarray:
    safetensors = needed("safetensors", "load_llm", "llm")
    with safetensors.safe_open(path, "numpy") as file:
        about = file.get_slice(name)
        if tuple(about.get_shape()) != shape:
            raise ValueError(
                f"{path}: {name} must have shape {shape}; got {tuple(about.get_shape())}"
            )
        if about.get_dtype() not in FLOATS:
            raise ValueError(
                f"{path}: {name} must be floating-point, {', '.join(FLOATS)}; "
                f"got {about.get_dtype()}"
            )
        array: np.ndarray = file.get_tensor(name)
    return array


def _check_tied(files: Mapping[str, Path], shape: Shape) -> None:
    head = _tensor(files["lm_head.weight"], "lm_head.weight", shape)
    embedding = "model.embed_tokens.weight"
    if not np.array_equal(head, _tensor(files[embedding], embedding, shape)):
        raise ValueError(
            f"{files['lm_head.weight']}: lm_head.weight differs from {embedding}, but "
            f"tie_word_embeddings is true"
        )
