"""A grader made of a function or of verdicts that are at hand: for tests and notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from advlib.grading._grader import Answer, GraderError
from advlib.grading._group import CandidateGroup
from advlib.grading._quoted import quoted
from advlib.grading._verdict import Verdict

Scripted = Answer | Verdict | dict[str, Any] | str
"""A verdict as an answer, as data, as the object of its JSON, or as JSON text."""


class ScriptedGrader:
    """Answers with what a function returns for the group, or with what a mapping holds.

    Args:
        script: a function of the group, which may be a coroutine function and may raise; or a
            mapping from group id. Either gives an :class:`Answer`, a :class:`Verdict`, a dict or
            JSON text; text is passed on as it is, valid or not.
    """

    def __init__(
        self,
        script: Callable[[CandidateGroup], Scripted | Awaitable[Scripted]] | Mapping[str, Scripted],
    ) -> None:
        self._script = script

    async def __call__(self, group: CandidateGroup) -> Answer:
        """Answer for one group.

        Raises:
            GraderError: the mapping has no such group.
            TypeError: what the script gave is no verdict in any form.
        """
        if callable(self._script):
            made = self._script(group)
            given = await made if inspect.isawaitable(made) else made
        elif group.id in self._script:
            given = self._script[group.id]
        else:
            raise GraderError(f"the script has no group {quoted(group.id)}")
        if isinstance(given, Answer):
            return given
        if isinstance(given, Verdict | dict):
            given = msgspec.json.encode(given).decode()
        if not isinstance(given, str):
            raise TypeError(f"a script gives a verdict; got {type(given).__name__}")
        return Answer(given, trace_id=f"scripted:{group.id}")
