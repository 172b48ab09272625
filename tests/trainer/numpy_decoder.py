"""The embedded decoder and the step's loss in NumPy float64, written from their equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from advlib.trainer import DecoderConfig


def norm(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def rotated(x: np.ndarray, position: int, base: float) -> np.ndarray:
    """Each pair (i, i + H/2) of one head's vector turned by position · base^(-2i/H)."""
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position * base ** (-2 * i / len(x))
        out[i] = x[i] * np.cos(angle) - x[i + half] * np.sin(angle)
        out[i + half] = x[i + half] * np.cos(angle) + x[i] * np.sin(angle)
    return out


def sequence_logits(config: DecoderConfig, params: Any, tokens: np.ndarray) -> np.ndarray:
    """(T, V) logits of one text without padding."""
    heads, width, served = config.heads, config.head_width, config.heads // config.kv_heads
    h = params["embed"][tokens]
    for layer in params["layers"]:
        x = norm(h, layer["attention_norm"], config.norm_eps)
        q = (x @ layer["q"]).reshape(len(tokens), heads, width)
        k = (x @ layer["k"]).reshape(len(tokens), config.kv_heads, width)
        v = (x @ layer["v"]).reshape(len(tokens), config.kv_heads, width)
        q, k = (
            np.stack(
                [[rotated(head, t, config.rope_base) for head in row] for t, row in enumerate(y)]
            )
            for y in (q, k)
        )
        attended = np.zeros((len(tokens), heads, width))
        for n in range(heads):
            for t in range(len(tokens)):
                scores = k[: t + 1, n // served] @ q[t, n] / np.sqrt(width)
                weights = np.exp(scores - scores.max())
                attended[t, n] = weights @ v[: t + 1, n // served] / weights.sum()
        h = h + attended.reshape(len(tokens), -1) @ layer["o"]
        x = norm(h, layer["hidden_norm"], config.norm_eps)
        gate = x @ layer["gate"]
        h = h + (gate / (1 + np.exp(-gate)) * (x @ layer["up"])) @ layer["down"]
    x = norm(h, params["norm"], config.norm_eps)
    return x @ (params["embed"].T if config.tied else params["head"])


def log_probs(
    logits: np.ndarray, *, temperature: float = 1.0, forbidden: tuple[int, ...] = ()
) -> np.ndarray:
    scaled = logits / temperature
    scaled[..., list(forbidden)] = -np.inf
    top = scaled.max(-1, keepdims=True)
    return scaled - top - np.log(np.exp(scaled - top).sum(-1, keepdims=True))


def token_log_probs(
    config: DecoderConfig,
    params: Any,
    texts: list[np.ndarray],
    actions: list[slice],
    *,
    temperature: float = 1.0,
    forbidden: tuple[int, ...] = (),
) -> list[np.ndarray]:
    """Of each text, the log-probabilities of its action tokens."""
    found = []
    for text, action in zip(texts, actions, strict=True):
        every = log_probs(
            sequence_logits(config, params, text), temperature=temperature, forbidden=forbidden
        )
        places = range(action.start, action.stop)
        found.append(np.array([every[place - 1, text[place]] for place in places]))
    return found


def importance_sampling_loss(
    config: DecoderConfig,
    params: Any,
    texts: list[np.ndarray],
    actions: list[slice],
    sampled: list[np.ndarray],
    advantages: np.ndarray,
    *,
    temperature: float = 1.0,
    forbidden: tuple[int, ...] = (),
) -> float:
    """-Σ exp(lp - lp_old) A over the action tokens of all texts, as tinker-cookbook sums it."""
    now = token_log_probs(
        config, params, texts, actions, temperature=temperature, forbidden=forbidden
    )
    total = 0.0
    for lp, old, advantage in zip(now, sampled, advantages, strict=True):
        total -= (np.exp(lp - old) * advantage).sum()
    return float(total)
