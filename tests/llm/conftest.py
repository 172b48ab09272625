"""Published models in small: random weights of every family, written by transformers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCAB = 96
SHARED: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA_ROPE = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip


class Family(NamedTuple):
    """Classes of transformers and what a case sets beside the shared sizes."""

    kind: str
    more: dict[str, Any]


FAMILIES = {
    "qwen2": Family("Qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 3000.0}}),
    "qwen2-tied": Family("Qwen2", {"tie_word_embeddings": True}),
    # Its heads together are not as wide as the stream.
    "qwen3": Family("Qwen3", {
        "head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5_000_000.0},
    }),
    "llama": Family("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "llama-stretched": Family(
        "Llama", {"rope_parameters": LLAMA_ROPE, "tie_word_embeddings": True}
    ),
    "gemma": Family("Gemma", {"head_dim": 16, "num_key_value_heads": 1}),
    "gemma-7b": Family("Gemma", {"head_dim": 8, "num_key_value_heads": 4}),
    "gemma2": Family("Gemma2", {
        "head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0, "sliding_window": 24,
    }),
    "gemma3": Family("Gemma3", {
        "head_dim": 8, "query_pre_attn_scalar": 8, "num_hidden_layers": 7, "sliding_window": 5,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }),
}  # fmt: skip


def randomized(model: Any, seed: int) -> None:
    """Weights at which heads attend sharply and no norm or bias is neutral."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            spread = 0.5 if weight.ndim == 1 else 0.35
            weight.copy_(weight + noise * spread if "norm" in name else noise * spread)


def write_model(folder: Path, name: str, **save: Any) -> None:
    import transformers

    family = FAMILIES[name]
    text = "Text" if family.kind == "Gemma3" else ""
    config = getattr(transformers, f"{family.kind}{text}Config")(**{**SHARED, **family.more})
    model = getattr(transformers, f"{family.kind}ForCausalLM")(config)
    randomized(model, seed=len(name))
    model.save_pretrained(folder, **save)


TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if quiet is defined and quiet %}<|quiet|>{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<|quiet|>{% endif %}{% endif %}"
)


def write_tokenizer(folder: Path, *, template: bool = True) -> None:
    """A byte-level BPE of 80 ids, with special tokens as chat models have them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<|start|>", "<|end|>", "<|quiet|>"]
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [*"abcdefghijklmnopqrstuvwxyz0123456789.,:;?!+-*/=()<>'", "Ġ", "Ċ"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 4, special_tokens=special, show_progress=False,
        initial_alphabet=alphabet,
    )  # fmt: skip
    tokenizer.train_from_iterator(["user", "assistant", "what is 12 + 30? 42"], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<|end|>", pad_token="<pad>",
        additional_special_tokens=["<|start|>", "<|quiet|>", "</s>"],
    )  # fmt: skip
    if template:
        fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of each family, made once, not to be changed."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            write_model(made[name], name)
            write_tokenizer(made[name])
        return made[name]

    return folder


@pytest.fixture
def changed(folders: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a folder, with fields of its config.json replaced, or removed where None."""

    def copy(name: str, **fields: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(folders(name), folder)
        path = folder / "config.json"
        config = {**json.loads(path.read_text()), **fields}
        kept = {key: value for key, value in config.items() if value is not None}
        path.write_text(json.dumps(kept))
        return folder

    return copy


class Padded(NamedTuple):
    """Prompts of several lengths, at the right end of their rows."""

    tokens: np.ndarray
    positions: np.ndarray
    mask: np.ndarray


@pytest.fixture(scope="session")
def padded() -> Padded:
    """20 columns: more than the window of Gemma 3's layers here, fewer than Gemma 2's."""
    rng = np.random.default_rng(0)
    lengths = np.array([20, 13, 3])
    mask = np.arange(20)[None] >= 20 - lengths[:, None]
    tokens = rng.integers(3, VOCAB, mask.shape).astype(np.int32)
    return Padded(tokens, np.maximum(np.cumsum(mask, 1) - 1, 0).astype(np.int32), mask)


def reference_logits(folder: Path, padded: Padded) -> np.ndarray:
    """What transformers computes in float32."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor(padded.tokens, dtype=torch.long),
            attention_mask=torch.tensor(padded.mask, dtype=torch.long),
            position_ids=torch.tensor(padded.positions, dtype=torch.long),
        ).logits
    return logits.numpy()
