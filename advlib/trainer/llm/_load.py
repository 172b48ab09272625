"""A published model in a local folder, as a policy that can be trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advlib import _checks
from advlib.trainer._options import count, needed
from advlib.trainer._policy import Params, Policy
from advlib.trainer.llm._config import Architecture, read_architecture
from advlib.trainer.llm._policy import Lora, llm_policy, parameter_shapes
from advlib.trainer.llm._tokenizer import FolderTokenizer, read_tokenizer
from advlib.trainer.llm._weights import read_weights

__all__ = ["LoadedPolicy", "load_llm"]

DTYPES = ("float32", "bfloat16")


class LoadedPolicy(NamedTuple):
    """What :func:`load_llm` returns.

    Attributes:
        policy: for ``make_sampler``, ``make_train_step`` and ``train``.
        params: what is trained: the LoRA matrices, or every weight.
        tokenizer: the folder's own.
        architecture: what ``config.json`` said; ``without_effect`` names the fields left aside.
    """

    policy: Policy
    params: Params
    tokenizer: FolderTokenizer
    architecture: Architecture


def load_llm(
    folder: str | os.PathLike[str],
    *,
    lora_rank: int | None = 32,
    lora_alpha: float | None = None,
    dtype: Any = None,
    seed: int = 0,
    chat: bool | None = None,
    system: str | None = None,
    template_options: Mapping[str, Any] | None = None,
    remat: bool = False,
    ignore_config: Collection[str] = (),
    place: Callable[[np.ndarray], jax.Array] = jnp.asarray,
) -> LoadedPolicy:
    """A Qwen 2, Qwen 3, Llama 3 or Gemma model from a folder of safetensors.

        h = W x + (α / r) B (A x),  A random, B = 0 at the start: W is frozen, A and B are trained

    Nothing is downloaded, and no code from the folder is run: weights are safetensors, the chat
    template runs in the sandbox of transformers.

    Args:
        folder: a local folder with ``config.json``, safetensors and the tokenizer's files.
        lora_rank: r. The matrices of every block are added to, embeddings are not. None trains all
            weights instead.
        lora_alpha: α. Default: r.
        dtype: dtype of the weights and of what is computed, float32 or bfloat16. LoRA's matrices
            are float32, and read in this one. Default: bfloat16 with LoRA. float32 without: there
            the ``compute_dtype`` of sampler and step says what is computed in.
        seed: of the random matrices A.
        chat: whether a prompt becomes the user's message of the chat template. Default: if the
            folder has a template.
        system: the system's message before every prompt.
        template_options: more variables of the template, such as ``{"enable_thinking": False}``.
        remat: compute each block again in the backward pass, to save memory.
        ignore_config: fields of ``config.json`` that are refused otherwise.
        place: puts a host array onto its devices, such as a split over a mesh.

    Returns:
        A :class:`LoadedPolicy`. Its functions hold the frozen weights, so that checkpoints and
        optimizer states are of LoRA's size.

    Raises:
        ImportError: a package is missing: ``pip install 'advlib[llm]'``.
        TypeError, ValueError: the folder is none; a field of the configuration is unknown or asks
            for what is not computed; a shard or tensor is missing, left over or of the wrong shape;
            there are no safetensors; an option is out of range.

    Source: Hu et al. 2021, LoRA (arXiv 2106.09685), section 4.1.
    """
    path = _folder(folder)
    default = "float32" if lora_rank is None else "bfloat16"
    name = jnp.dtype(default if dtype is None else dtype).name
    _checks.one_of("dtype", name, DTYPES)
    lora = None
    if lora_rank is not None:
        rank = count("lora_rank", lora_rank, 1)
        alpha = float(rank) if lora_alpha is None else _checks.number("lora_alpha", lora_alpha, 0.0)
        lora = Lora(rank, alpha)
    elif lora_alpha is not None:
        raise ValueError("lora_alpha needs a lora_rank")
    architecture = read_architecture(path / "config.json", ignore=ignore_config)
    tokenizer = read_tokenizer(
        path,
        vocab_size=architecture.vocab_size,
        chat=chat,
        system=system,
        template_options=template_options,
    )
    shapes = parameter_shapes(architecture)
    weights = read_weights(path, shapes, architecture.family, jnp.dtype(name), place)
    if lora is None:
        policy = llm_policy(architecture, {}, remat=remat)
        return LoadedPolicy(policy, weights, tokenizer, architecture)
    policy = llm_policy(architecture, weights, lora=lora, remat=remat)
    return LoadedPolicy(policy, policy.init(jax.random.key(seed)), tokenizer, architecture)


def _folder(folder: str | os.PathLike[str]) -> Path:
    # Read at import by the packages that would ask a hub; nothing here needs one.
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(variable, "1")
    for module in ("tunix", "qwix", "transformers", "safetensors"):
        needed(module, "load_llm", "llm")
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(
            f"load_llm reads a local folder; {str(folder)!r} is none, and nothing is downloaded: "
            f"fetch the model's files first, for instance with 'hf download'"
        )
    return path
