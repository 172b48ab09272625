"""What a spec may say about policy and questions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from advlib.trainer import DecoderConfig


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a spec: unknown keys are refused."""


class Embedded(Part, frozen=True, tag="embedded", tag_field="kind"):
    """The embedded decoder over bytes, from random parameters.

    Attributes:
        width: of the residual stream.
        layers: number of blocks.
        heads: query heads.
        kv_heads: key and value heads.
        head_width: of each head.
        hidden: width of the feed-forward part.
        seed: of the random parameters.
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    hidden: int = 384
    seed: int = 0

    def config(self, vocab_size: int) -> DecoderConfig:
        """The shape, with as many tokens as the tokenizer has."""
        return DecoderConfig(
            vocab_size=vocab_size,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_width=self.head_width,
            hidden=self.hidden,
        )


class PublishedPolicy(Part, frozen=True, tag="folder", tag_field="kind"):
    """A Qwen 2, Qwen 3, Llama 3 or Gemma model from a local folder; needs the extra ``llm``.

    Attributes:
        path: the folder; from the spec's own where it is relative.
        lora_rank: of the matrices that are trained; None trains all weights.
        lora_alpha: the rank by default.
        dtype: of the frozen weights and of what is computed; bfloat16 with LoRA, else float32.
        seed: of LoRA's random matrices.
        chat: whether a question becomes a message of the folder's chat template; if it has one.
        system: a message of the system before every question.
        template_options: variables of the template, such as ``{"enable_thinking": false}``.
        remat: compute each block again in the backward pass, to save memory.
        ignore_config: fields of ``config.json`` that are refused otherwise.
    """

    path: str
    lora_rank: int | None = 32
    lora_alpha: float | None = None
    dtype: Literal["float32", "bfloat16"] | None = None
    seed: int = 0
    chat: bool | None = None
    system: str | None = None
    template_options: dict[str, Any] = {}
    remat: bool = False
    ignore_config: tuple[str, ...] = ()


class GivenPolicy(Part, frozen=True, tag="given", tag_field="kind"):
    """A policy that the caller of ``run_experiment`` hands over.

    Attributes:
        name: what the record calls it.
    """

    name: str


class Templates(Part, frozen=True, tag="templates", tag_field="kind"):
    """Questions from the six templates of ``advlib.trainer.tasks``.

    Attributes:
        templates: names, all six by default.
        num_train: questions to train and calibrate on.
        num_held_out: questions to be examined on.
        seed: of the draws.
    """

    templates: tuple[str, ...] = (
        "backwards",
        "repeat",
        "final_digit",
        "larger",
        "smallest_digit",
        "product",
    )
    num_train: int = 4096
    num_held_out: int = 1000
    seed: int = 0


class Jsonl(Part, frozen=True, tag="jsonl", tag_field="kind"):
    r"""Word problems from JSON lines, graded by their final number.

    Attributes:
        train: file of the questions to train and calibrate on.
        held_out: file of the questions to be examined on.
        question: name of the field with the question.
        answer: name of the field with the answer.
        wording: of the prompt; ``{question}`` is where the question goes, or ``{}`` in a wording
            without that.
        format_penalty: taken off where no answer is marked.
    """

    train: str
    held_out: str
    question: str = "question"
    answer: str = "answer"
    wording: str = "{}"
    format_penalty: float = 0.0


class ReasoningGym(Part, frozen=True, tag="reasoning_gym", tag_field="kind"):
    """Data sets of reasoning-gym.

    Attributes:
        datasets: settings of each by name.
        weights: share of each by name; even by default.
        num_train: questions to train and calibrate on.
        num_held_out: questions to be examined on.
        seed: of the draws.
        wording: of the prompt; ``{question}`` is where the question goes, or ``{}`` in a wording
            without that.
    """

    datasets: dict[str, dict[str, Any]]
    weights: dict[str, float] = {}
    num_train: int = 4096
    num_held_out: int = 1000
    seed: int = 0
    wording: str = "{}"


class GivenTasks(Part, frozen=True, tag="given", tag_field="kind"):
    """Questions and a scorer that the caller of ``run_experiment`` hands over.

    Attributes:
        name: what the record calls them.
    """

    name: str


class WarmStart(Part, frozen=True):
    """Imitation of the noisy teacher before anything is compared.

    Attributes:
        steps: updates.
        batch_size: lessons an update.
        learning_rate: the highest.
        right_share: chance of a right answer where the teacher has a habit.
        seed: of the lessons.
    """

    steps: int = 400
    batch_size: int = 64
    learning_rate: float = 2e-3
    right_share: float = 0.4
    seed: int = 0
