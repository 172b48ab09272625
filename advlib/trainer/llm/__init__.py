"""Published language models from local folders, through google-tunix: the extra ``[llm]``."""

from __future__ import annotations

from advlib.trainer.llm._load import LoadedPolicy, load_llm
from advlib.trainer.llm._tokenizer import FolderTokenizer

__all__ = ["FolderTokenizer", "LoadedPolicy", "load_llm"]
