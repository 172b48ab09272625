"""Rotary positions: the angles that a ``config.json`` asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["Rope", "angles", "frequencies", "read_rope", "rotated"]


class Rope(NamedTuple):
    """Which angle a pair of coordinates turns by at each position.

    Attributes:
        base: base of the frequencies.
        factor: by how much long wavelengths are stretched; all of them where ``original`` is None.
        low: wavelengths above ``original / low`` are stretched in full.
        high: wavelengths below ``original / high`` are not stretched.
        original: the length that the model was first trained for, or None.
    """

    base: float
    factor: float = 1.0
    low: float = 1.0
    high: float = 1.0
    original: int | None = None


def frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """Angle a position, of each pair of coordinates.

        θ_k = base^(-2k / H);   stretched: (1 - s) θ_k / factor + s θ_k,
        s = clip((original θ_k / 2π - low) / (high - low), 0, 1)

    Args:
        rope: base and stretch.
        head_dim: H, even.

    Returns:
        (H / 2,) float32.

    Source: Llama 3.1's reference code, ``apply_scaling``; linear stretching where ``original`` is
    None (Chen et al. 2023, position interpolation).
    """
    plain = rope.base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if rope.original is None:
        return (plain / rope.factor).astype(np.float32)
    turns = rope.original * plain / (2 * math.pi)
    share = np.clip((turns - rope.low) / (rope.high - rope.low), 0, 1)
    return ((1 - share) * plain / rope.factor + share * plain).astype(np.float32)


def angles(rope: Rope, head_dim: int, positions: Array) -> tuple[Array, Array]:
    """Cosine and sine, each (B, T, 1, H / 2) float32, at (B, T) positions."""
    turned = positions.astype(jnp.float32)[..., None, None] * frequencies(rope, head_dim)
    return jnp.cos(turned), jnp.sin(turned)


def rotated(x: Array, turn: tuple[Array, Array]) -> Array:
    """(B, T, N, H) heads, turned: the two halves of each head are the two coordinates."""
    cos, sin = turn
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    both = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return both.astype(x.dtype)


def read_rope(path: Path, fields: dict[str, Any], family: str) -> tuple[Rope, Rope | None]:
    """The rotary fields of a ``config.json``, taken out of ``fields``.

    Older files have ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``; Gemma 3
    has two sets, one for the layers with a window.

    Returns:
        The frequencies of full layers, and of layers with a window where they differ.

    Raises:
        ValueError: the fields are missing, contradict each other, or ask for something unknown.
    """
    older = {
        name: fields.pop(name, None)
        for name in ("rope_theta", "rope_scaling", "rope_local_base_freq")
    }
    newer = fields.pop("rope_parameters", None)
    found = []
    if newer is not None:
        if not isinstance(newer, dict):
            raise ValueError(f"{path}: rope_parameters must be an object; got {newer!r}")
        parts = [newer]
        if family == "gemma3_text":
            if set(newer) != {"full_attention", "sliding_attention"}:
                raise ValueError(
                    f"{path}: rope_parameters must have full_attention and sliding_attention; "
                    f"got {', '.join(newer)}"
                )
            parts = [newer["full_attention"], newer["sliding_attention"]]
        found.append([_one(path, family, part) for part in parts])
    if older["rope_theta"] is not None:
        scaling = older["rope_scaling"] or {}
        ropes = [_one(path, family, {"rope_theta": older["rope_theta"], **scaling})]
        if family == "gemma3_text":
            ropes.append(_one(path, family, {"rope_theta": older["rope_local_base_freq"]}))
        found.append(ropes)
    if not found:
        raise ValueError(f"{path}: rope_parameters, or rope_theta, is missing")
    if any(ropes != found[0] for ropes in found):
        raise ValueError(f"{path}: rope_parameters and rope_theta contradict each other")
    if older["rope_scaling"] and older["rope_theta"] is None:
        raise ValueError(f"{path}: rope_scaling without rope_theta")
    ropes = found[0]
    return ropes[0], ropes[1] if len(ropes) > 1 else None


def _one(path: Path, family: str, given: Mapping[str, Any]) -> Rope:
    fields = dict(given)
    kinds = {fields.pop(name, None) for name in ("rope_type", "type")} - {None}
    kind = kinds.pop() if len(kinds) == 1 else "default"
    allowed = {"llama": ("default", "llama3"), "gemma3_text": ("default", "linear")}
    if kinds or kind not in allowed.get(family, ("default",)):
        raise ValueError(
            f"{path}: rope_type must be {' or '.join(allowed.get(family, ('default',)))} "
            f"for {family}; got {sorted({kind, *kinds})}"
        )

    def number(name: str) -> float:
        value = fields.pop(name, None)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise ValueError(f"{path}: {name} must be a positive number; got {value!r}")
        return float(value)

    rope = Rope(number("rope_theta"))
    if kind == "linear":
        rope = rope._replace(factor=number("factor"))
    if kind == "llama3":
        rope = rope._replace(
            factor=number("factor"),
            low=number("low_freq_factor"),
            high=number("high_freq_factor"),
            original=int(number("original_max_position_embeddings")),
        )
        if not rope.low < rope.high:
            raise ValueError(f"{path}: low_freq_factor must be below high_freq_factor")
    if fields:
        raise ValueError(f"{path}: not known in the rotary settings: {', '.join(sorted(fields))}")
    return rope
