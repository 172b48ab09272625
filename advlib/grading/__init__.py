"""Grading groups of rollouts: verdicts, citations, graders, and the credit that follows."""

from __future__ import annotations

from advlib.grading._check import check_verdict
from advlib.grading._citations import MIN_QUOTE_CHARS, MIN_QUOTE_WORDS, check_citations
from advlib.grading._config import REWARD_SAMPLERS, GarConfig, check_config
from advlib.grading._credit import TraceCredit, trace_credit
from advlib.grading._group_credit import group_credit
from advlib.grading._parse import MAX_VERDICT_CHARS, parse_verdict
from advlib.grading._standing import CandidateInfo, VerdictArrays, candidate_info, verdict_arrays
from advlib.grading._verdict import (
    MARGINS,
    CandidateVerdict,
    Evidence,
    InvalidVerdict,
    Verdict,
)

__all__ = [
    "MARGINS",
    "MAX_VERDICT_CHARS",
    "MIN_QUOTE_CHARS",
    "MIN_QUOTE_WORDS",
    "REWARD_SAMPLERS",
    "CandidateInfo",
    "CandidateVerdict",
    "Evidence",
    "GarConfig",
    "InvalidVerdict",
    "TraceCredit",
    "Verdict",
    "VerdictArrays",
    "candidate_info",
    "check_citations",
    "check_config",
    "check_verdict",
    "group_credit",
    "parse_verdict",
    "trace_credit",
    "verdict_arrays",
]
