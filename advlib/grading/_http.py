"""A grader behind HTTP: any server with an OpenAI-compatible ``/chat/completions``."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from advlib.grading._completion import (
    Completion,
    Usage,
    completion,
    cut,
    one_line,
    sendable,
    total,
)
from advlib.grading._endpoint import checked_key, endpoint, imported_httpx, whole, within
from advlib.grading._grader import Answer, GraderError
from advlib.grading._group import CandidateGroup
from advlib.grading._post import Failure, Poster, phrase
from advlib.grading._prompts import VERDICT_SCHEMA, grading_messages
from advlib.grading._retry import is_passing, pause

if TYPE_CHECKING:
    import httpx

# Fields of a request that arguments set.
_OWN = frozenset({"model", "messages", "max_tokens", "temperature", "response_format", "stream"})
_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "verdict", "strict": True, "schema": VERDICT_SCHEMA},
}
_ABOUT_FORMAT = re.compile(r"response_format|json_schema", re.IGNORECASE)


class HttpGrader:
    """Grades by asking a model behind ``{base_url}/chat/completions``.

    A verdict's JSON schema is sent as ``response_format``; a server that refuses it (400 or 422
    naming it) is asked without, from then on. Requests are repeated after 408, 429, 5xx, errors of
    the connection, timeouts, and bodies that are cut or are no JSON; with exponential backoff, full
    jitter and ``Retry-After``. Nothing else is repeated. Certificates are checked, and redirects
    are not followed, since the key would travel with them. One instance serves one event loop.

    Args:
        base_url: up to and without ``/chat/completions``; http or https, without credentials.
        model: the model's name at that server.
        api_key: sent as a bearer token. Default: the environment variable
            ``ADVLIB_GRADER_API_KEY``; none is sent where that is unset or empty. It appears in no
            message, no ``repr`` and no file.
        max_tokens: limit of an answer; a verdict that is cut there is an error. None leaves it to
            the server.
        temperature: of sampling; None leaves it to the server.
        timeout: seconds for one request, from connecting to the last byte.
        max_retries: requests that may follow the first.
        backoff: upper end of the first random pause, in seconds; it doubles each time.
        longest_pause: bound of a random pause, and of what ``Retry-After`` may ask for, in seconds.
        max_chars: a group whose prompt has more characters is refused before any request.
        max_bytes: a body that is longer is refused.
        input_price: per million input tokens; with ``output_price``, the cost where the server
            reports none.
        output_price: per million output tokens.
        options: further fields of the request, such as ``{"reasoning_effort": "low"}``.
        messages: makes the prompt of a group. Default: :func:`grading_messages`.
        transport: an httpx transport in place of the default one; proxies named in the environment
            are then not used.

    Raises:
        ImportError: httpx is not installed; ``pip install 'advlib[grade]'``.
        ValueError: an argument is out of range; the message never shows the key.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        timeout: float = 600.0,
        max_retries: int = 5,
        backoff: float = 0.5,
        longest_pause: float = 60.0,
        max_chars: int = 2_000_000,
        max_bytes: int = 8 << 20,
        input_price: float | None = None,
        output_price: float | None = None,
        options: Mapping[str, Any] | None = None,
        messages: Callable[[CandidateGroup], list[dict[str, str]]] = grading_messages,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        imported_httpx()
        within("timeout", timeout)
        whole("max_retries", max_retries, least=0)
        within("backoff", backoff, least=0)
        within("longest_pause", longest_pause, least=0)
        whole("max_chars", max_chars, least=1)
        whole("max_bytes", max_bytes, least=1)
        if max_tokens is not None:
            whole("max_tokens", max_tokens, least=1)
        optional = {
            "temperature": temperature,
            "input_price": input_price,
            "output_price": output_price,
        }
        for name, value in optional.items():
            if value is not None:
                within(name, value, least=0)
        if (input_price is None) != (output_price is None):
            raise ValueError("input_price and output_price must be given together")
        if taken := sorted(_OWN & set(options or {})):
            raise ValueError(f"options must not hold {', '.join(taken)}, which are set elsewhere")
        self.model = model
        self._fields = {"model": model, **(options or {})}
        if max_tokens is not None:
            self._fields["max_tokens"] = max_tokens
        if temperature is not None:
            self._fields["temperature"] = temperature
        self._max_tokens = max_tokens
        self._max_retries = max_retries
        self._backoff, self._longest_pause = backoff, longest_pause
        self._max_chars = max_chars
        self._prices = (input_price, output_price)
        self._messages = messages
        self._random = Random()
        self._structured = True
        self._poster = Poster(
            endpoint(base_url),
            checked_key(api_key),
            timeout=timeout,
            max_bytes=max_bytes,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"HttpGrader({self._poster.url!r}, {self.model!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._poster.aclose()

    async def __call__(self, group: CandidateGroup) -> Answer:
        """Grade one group.

        Raises:
            GraderError: the prompt is too long, the server refused, the retries are used up, or
                the verdict was cut. Its ``answer`` says what was spent.
        """
        messages = [
            {name: sendable(text) for name, text in message.items()}
            for message in self._messages(group)
        ]
        size = sum(len(message["content"]) for message in messages)
        if size > self._max_chars:
            raise GraderError(f"the prompt has {size} characters; max_chars is {self._max_chars}")
        clock = asyncio.get_running_loop().time
        trace_id, started = uuid.uuid4().hex, clock()
        spent, attempts, failures = Usage(), 0, 0

        def answer(text: str, model: str | None) -> Answer:
            tokens = spent.input_tokens, spent.output_tokens
            seconds = clock() - started
            model = model or self.model
            return Answer(text, trace_id, model, *tokens, self._cost(spent), attempts, seconds)

        while True:
            structured = self._structured
            attempts += 1
            try:
                response = await self._poster.post(self._body(messages, structured))
                read = self._read(response.status, response.body)
                spent = total(spent, read.usage)
                self._check(read)
                return answer(read.text, read.model)
            except Failure as failure:
                refused = failure.status in (400, 422) and _ABOUT_FORMAT.search(failure.words)
                if structured and refused:
                    self._structured = False
                    continue
                failures += 1
                if not failure.again or failures > self._max_retries:
                    times = f" (after {attempts} requests)" if attempts > 1 else ""
                    told = f"{self._poster.url}: {failure}{times}"
                    raise GraderError(
                        told, status=failure.status, answer=answer("", None)
                    ) from None
                seconds = pause(
                    failures,
                    base=self._backoff,
                    longest=self._longest_pause,
                    asked=failure.asked,
                    random=self._random,
                )
            await asyncio.sleep(seconds)

    def _body(self, messages: list[dict[str, str]], structured: bool) -> bytes:
        request = {**self._fields, "messages": messages}
        if structured:
            request["response_format"] = _FORMAT
        return json.dumps(request, allow_nan=False).encode()

    def _read(self, status: int, body: bytes) -> Completion:
        try:
            return completion(body)
        except ValueError as error:  # cut without a sign of it, or the page of a proxy
            told = cut(self._poster.public(one_line(str(error))))
            raise Failure(f"{phrase(status)}, and the body is {told}", again=True) from None

    def _check(self, read: Completion) -> None:
        """Refuses an error that came with a good status, and a verdict that was cut."""
        if read.error is not None and not read.text:
            words, code = read.error
            told = cut(self._poster.public(words)) or "no message"
            passing = code is not None and is_passing(code)
            raise Failure(f"the server reports an error: {told}", again=passing, status=code)
        if read.finish_reason == "length":
            limit = "" if self._max_tokens is None else f" (max_tokens is {self._max_tokens})"
            raise Failure(f"the verdict was cut: finish_reason is length{limit}", again=False)

    def _cost(self, spent: Usage) -> float | None:
        per_input, per_output = self._prices
        if spent.cost is not None or per_input is None or per_output is None:
            return spent.cost
        if spent.input_tokens is None or spent.output_tokens is None:
            return None
        return (spent.input_tokens * per_input + spent.output_tokens * per_output) / 1e6
