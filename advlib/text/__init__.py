"""Prompts to features, on the host: what a kernel baseline compares prompts by."""

from __future__ import annotations

from advlib.text._prompts import prompt_text, prompt_texts
from advlib.text._tfidf import Tfidf, fit_tfidf, load

__all__ = ["Tfidf", "fit_tfidf", "load", "prompt_text", "prompt_texts"]
