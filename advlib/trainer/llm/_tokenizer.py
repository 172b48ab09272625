"""A folder's own tokenizer and chat template, as the loop wants a tokenizer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advlib.trainer._options import needed
from advlib.trainer.llm._config import read_json

__all__ = ["FolderTokenizer", "read_tokenizer"]


class FolderTokenizer:
    """The tokenizer of a published model.

    Attributes:
        tokenizer: that of transformers, for what is not offered here.
        vocab_size: V of the model, which may be more than the tokenizer has ids.
        pad_token: the id that fills up shorter rows.
        end_tokens: the ids that end a response, of all that the folder's files name.
        forbidden: padding and begin of text, unless they end a response, and ids without a text.
        chat: whether a prompt is put into the chat template.
        system: what stands before every prompt as the system's message, or None.
        template_options: more variables of the chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        vocab_size: int,
        end_tokens: Sequence[int],
        chat: bool,
        system: str | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.end_tokens = tuple(end_tokens)
        self.chat = chat
        self.system = system
        self.template_options = dict(template_options or {})
        pad, begin = tokenizer.pad_token_id, tokenizer.bos_token_id
        # Masks come from lengths, so that any id can fill a row.
        self.pad_token = self.end_tokens[0] if pad is None else int(pad)
        opens = {token for token in (pad, begin) if token is not None} - set(self.end_tokens)
        self.forbidden = tuple(sorted(opens | set(range(len(tokenizer), vocab_size))))
        self._special = tuple(sorted(str(token) for token in tokenizer.all_special_tokens))

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt: as the user's message in the chat template, or as the text it is.

        Raises:
            ValueError: the text spells a special token, which would be read as one.
        """
        for token in self._special:
            if token in text:
                raise ValueError(f"a prompt must not spell the special token {token!r}")
        if not self.chat:
            return [int(token) for token in self.tokenizer(text)["input_ids"]]
        messages = [{"role": "user", "content": text}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        ids = self.tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **self.template_options,
        )
        return [int(token) for token in ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response, without special tokens.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        outside = [token for token in tokens if not 0 <= token < self.vocab_size]
        if outside:
            raise ValueError(f"tokens must lie in [0, {self.vocab_size}); got {outside[0]}")
        text: str = self.tokenizer.decode(
            [int(token) for token in tokens],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        return text


def read_tokenizer(
    folder: Path,
    *,
    vocab_size: int,
    chat: bool | None,
    system: str | None,
    template_options: Mapping[str, Any] | None,
) -> FolderTokenizer:
    """The tokenizer in a folder; no code of the folder is run, and nothing is asked of a hub.

    Args:
        folder: the model's folder.
        vocab_size: V of the model.
        chat: whether prompts go through the chat template. Default: if the folder has one.
        system: see :class:`FolderTokenizer`.
        template_options: see :class:`FolderTokenizer`.

    Raises:
        ValueError: there is no tokenizer; it has more ids than the model; there is no end token;
            ``chat`` is asked for and there is no template; the template is not used and ``system``
            or ``template_options`` is given; an option is set here already, or the template does
            not read it.
        ImportError: transformers is not installed.
    """
    transformers = needed("transformers", "load_llm", "llm")
    ends = _end_tokens(folder, vocab_size)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder}: no tokenizer that can be read: {error}") from None
    if len(tokenizer) > vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {len(tokenizer)} ids and the model {vocab_size}"
        )
    template = tokenizer.chat_template is not None
    chat = template if chat is None else chat
    if chat and not template:
        raise ValueError(f"{folder}: chat=True, but the tokenizer has no chat template")
    if not chat and (system is not None or template_options):
        raise ValueError("system and template_options need a chat template")
    _check_options(tokenizer, template_options or {})
    if tokenizer.eos_token_id is not None:
        ends = tuple(dict.fromkeys([*ends, int(tokenizer.eos_token_id)]))
    if not ends:
        raise ValueError(f"{folder}: no end token: no file names an eos_token_id")
    return FolderTokenizer(
        tokenizer,
        vocab_size=vocab_size,
        end_tokens=ends,
        chat=chat,
        system=system,
        template_options=template_options,
    )


def _check_options(tokenizer: Any, options: Mapping[str, Any]) -> None:
    """Refuse variables that a prompt sets by itself, and such as would have no effect."""
    ours = {*inspect.signature(tokenizer.apply_chat_template).parameters, "messages"}
    for name in options:
        if name in ours - {"tools", "documents"}:
            raise ValueError(f"template_options must not set {name!r}: every prompt does")
        if not re.search(rf"\b{re.escape(name)}\b", tokenizer.get_chat_template()):
            raise ValueError(f"template_options: the chat template does not read {name!r}")


def _end_tokens(folder: Path, vocab_size: int) -> tuple[int, ...]:
    """What the generation settings and the configuration name, in this order."""
    found: dict[int, None] = {}
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if name != "config.json" and not path.exists():
            continue
        value = read_json(path).get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token in ids:
            inside = isinstance(token, int) and not isinstance(token, bool)
            if not inside or not 0 <= token < vocab_size:
                raise ValueError(
                    f"{path}: eos_token_id must be ids in [0, {vocab_size}); got {value!r}"
                )
            found[token] = None
    return tuple(found)
