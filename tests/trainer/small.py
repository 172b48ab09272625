"""A policy, a tokenizer and batches small enough for every test."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from advlib import trainer
from advlib.trainer import Batch, ByteTokenizer, DecoderConfig, Prompts, Sampler

TINY = DecoderConfig(
    vocab_size=11, width=8, layers=2, heads=2, kv_heads=1, head_width=4, hidden=8, rope_base=100.0
)
ONE_BLOCK = TINY._replace(layers=1)  # where depth shows nothing: half the compilation
BYTES = DecoderConfig(width=16, layers=1, heads=2, kv_heads=1, head_width=8, hidden=32)
TOKENIZER = ByteTokenizer()


@functools.cache
def params(config: DecoderConfig, seed: int = 0) -> Any:
    """Parameters; no test may give them away to a step."""
    return jax.jit(trainer.decoder(config).init)(jax.random.key(seed))


def ragged_prompts(rows: int, width: int, vocab: int, seed: int = 0) -> Prompts:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, width + 1, rows)
    return trainer.pad_prompts([rng.integers(0, vocab, n).tolist() for n in lengths], width)


@functools.cache
def sampler(config: DecoderConfig, width: int, new: int) -> Sampler:
    return trainer.make_sampler(
        trainer.decoder(config), max_prompt=width, max_new=new, end_tokens=(1,), forbidden=(0,)
    )


def sampled_batch(
    config: DecoderConfig, tree: Any, *, rows: int = 8, width: int = 5, new: int = 6, seed: int = 0
) -> Batch:
    """A batch as the loop makes it: rollouts of the policy, and advantages of any size."""
    sample = sampler(config, width, new)
    prompts = ragged_prompts(rows, width, config.vocab_size, seed)
    samples = sample(tree, prompts, jax.random.key(seed))
    advantages = np.random.default_rng(seed).normal(size=rows).astype(np.float32)
    return trainer.rollout_batch(prompts, samples, advantages)
