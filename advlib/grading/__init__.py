"""Grading groups of rollouts: verdicts, citations, graders, and the credit that follows."""

from __future__ import annotations

from advlib.grading._candidates import candidates
from advlib.grading._check import check_verdict
from advlib.grading._citations import MIN_QUOTE_CHARS, MIN_QUOTE_WORDS, check_citations
from advlib.grading._config import REWARD_SAMPLERS, GarConfig, check_config
from advlib.grading._credit import TraceCredit, trace_credit
from advlib.grading._group import (
    Candidate,
    CandidateGroup,
    Episode,
    LeftOut,
    Mode,
    Privileged,
    Reason,
    Trace,
    Turn,
)
from advlib.grading._group_credit import group_credit
from advlib.grading._parse import MAX_VERDICT_CHARS, parse_verdict
from advlib.grading._prompts import VERDICT_SCHEMA, grading_messages, prompt_chars
from advlib.grading._standing import CandidateInfo, VerdictArrays, candidate_info, verdict_arrays
from advlib.grading._transcript import Message, ToolCall, turns_of
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
    "VERDICT_SCHEMA",
    "Candidate",
    "CandidateGroup",
    "CandidateInfo",
    "CandidateVerdict",
    "Episode",
    "Evidence",
    "GarConfig",
    "InvalidVerdict",
    "LeftOut",
    "Message",
    "Mode",
    "Privileged",
    "Reason",
    "ToolCall",
    "Trace",
    "TraceCredit",
    "Turn",
    "Verdict",
    "VerdictArrays",
    "candidate_info",
    "candidates",
    "check_citations",
    "check_config",
    "check_verdict",
    "grading_messages",
    "group_credit",
    "parse_verdict",
    "prompt_chars",
    "trace_credit",
    "turns_of",
    "verdict_arrays",
]
