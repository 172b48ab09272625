"""Grading groups of rollouts: verdicts, citations, graders, and the credit that follows."""

from __future__ import annotations

from advlib.grading._agreement import JudgeAgreement, judge_agreement
from advlib.grading._annotations import Annotation, grade_episode, trace_annotations
from advlib.grading._candidates import candidates
from advlib.grading._check import check_verdict
from advlib.grading._citations import MIN_QUOTE_CHARS, MIN_QUOTE_WORDS, check_citations
from advlib.grading._config import REWARD_SAMPLERS, GarConfig, check_config
from advlib.grading._credit import TraceCredit, trace_credit
from advlib.grading._endpoint import API_KEY
from advlib.grading._finalize import Finalizer
from advlib.grading._grade_all import grade_all
from advlib.grading._grader import Answer, Grader, GraderError
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
from advlib.grading._http import HttpGrader
from advlib.grading._metrics import grading_metrics
from advlib.grading._outcome import GradedGroup, outcome, to_be_graded
from advlib.grading._parse import MAX_VERDICT_CHARS, parse_verdict
from advlib.grading._prompts import VERDICT_SCHEMA, grading_messages, prompt_chars
from advlib.grading._replay import ReplayGrader
from advlib.grading._scripted import ScriptedGrader
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
    "API_KEY",
    "MARGINS",
    "MAX_VERDICT_CHARS",
    "MIN_QUOTE_CHARS",
    "MIN_QUOTE_WORDS",
    "REWARD_SAMPLERS",
    "VERDICT_SCHEMA",
    "Annotation",
    "Answer",
    "Candidate",
    "CandidateGroup",
    "CandidateInfo",
    "CandidateVerdict",
    "Episode",
    "Evidence",
    "Finalizer",
    "GarConfig",
    "GradedGroup",
    "Grader",
    "GraderError",
    "HttpGrader",
    "InvalidVerdict",
    "JudgeAgreement",
    "LeftOut",
    "Message",
    "Mode",
    "Privileged",
    "Reason",
    "ReplayGrader",
    "ScriptedGrader",
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
    "grade_all",
    "grade_episode",
    "grading_messages",
    "grading_metrics",
    "group_credit",
    "judge_agreement",
    "outcome",
    "parse_verdict",
    "prompt_chars",
    "to_be_graded",
    "trace_annotations",
    "trace_credit",
    "turns_of",
    "verdict_arrays",
]
