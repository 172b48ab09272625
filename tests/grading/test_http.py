"""The HTTP grader: requests, replies, repeats, accounts, and what may never be shown."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from email.utils import formatdate
from random import Random
from typing import Any

import httpx
import pytest

from advlib.grading import VERDICT_SCHEMA, Answer, GraderError, HttpGrader, grading_messages
from advlib.grading._retry import pause, retry_after
from tests.grading import clock, small
from tests.grading.server import GraderServer, Reply, completion

KEY = "sk-never-shown-4711"
TEXT = small.text(small.group(), [["c01"], ["c02", "c03"]])
URL = "https://grader.example/v1"


@pytest.fixture(autouse=True)
def _no_key_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVLIB_GRADER_API_KEY", raising=False)


class Script(httpx.AsyncBaseTransport):
    """Gives one reply after the other, the last one for ever, and keeps requests and times."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        await asyncio.sleep(reply.delay)
        return httpx.Response(reply.status, headers=dict(reply.headers), stream=Body(reply.body))


class Body(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __aiter__(self) -> Any:
        for start in range(0, len(self.body), 1000):
            yield self.body[start : start + 1000]


def ask(script: Script, *, times: int = 1, **options: Any) -> list[Answer]:
    async def main() -> list[Answer]:
        async with HttpGrader(URL, "judge", transport=script, **options) as grader:
            return [await grader(small.group()) for _ in range(times)]

    return clock.run(main())


def refusal(script: Script, **options: Any) -> GraderError:
    with pytest.raises(GraderError) as caught:
        ask(script, **options)
    return caught.value


# The request


def test_a_request_asks_for_a_verdict_by_schema() -> None:
    script = Script(Reply.of(TEXT))
    (answer,) = ask(
        script, max_tokens=900, temperature=0.0, options={"seed": 3}, api_key=KEY, max_chars=10**6
    )
    (request,) = script.requests
    assert request.method == "POST"
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"
    (body,) = script.bodies
    assert body.pop("messages") == grading_messages(small.group())
    schema = body.pop("response_format")["json_schema"]
    assert schema == {"name": "verdict", "strict": True, "schema": VERDICT_SCHEMA}
    assert body == {"model": "judge", "max_tokens": 900, "temperature": 0.0, "seed": 3}
    assert answer.text == TEXT
    assert answer.model == "made-grader"
    assert (answer.input_tokens, answer.output_tokens, answer.attempts) == (100, 20, 1)


def test_nothing_is_sent_that_was_not_set() -> None:
    script = Script(Reply.of(TEXT))
    ask(script)
    assert set(script.bodies[0]) == {"model", "messages", "response_format"}
    assert "authorization" not in script.requests[0].headers


@pytest.mark.parametrize(
    ("given", "environment", "sent"),
    [
        (None, " from-environment\n", "Bearer from-environment"),
        ("given", "from-environment", "Bearer given"),
        ("", "from-environment", None),
        (None, "", None),
    ],
)
def test_where_the_key_comes_from(
    given: str | None, environment: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVLIB_GRADER_API_KEY", environment)
    script = Script(Reply.of(TEXT))
    ask(script, api_key=given)
    assert script.requests[0].headers.get("authorization") == sent


def test_half_a_surrogate_pair_is_sent_as_a_replacement() -> None:
    def messages(group: object) -> list[dict[str, str]]:
        return [{"role": "user", "content": "a\ud800b \U0001f600"}]

    script = Script(Reply.of(TEXT))
    ask(script, messages=messages)
    assert script.bodies[0]["messages"][0]["content"] == "a\ufffdb \U0001f600"


def test_a_prompt_that_is_too_long_is_not_sent() -> None:
    size = sum(len(message["content"]) for message in grading_messages(small.group()))
    script = Script(Reply.of(TEXT))
    error = refusal(script, max_chars=size - 1)
    assert str(error) == f"the prompt has {size} characters; max_chars is {size - 1}"
    assert not script.requests
    assert ask(script, max_chars=size)


# Structured output


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_without_schemas_is_asked_without_from_then_on(status: int) -> None:
    refused = Reply.error(status, "'response_format.type' must be text or json_object")
    script = Script(refused, Reply.of(TEXT))
    first, second = ask(script, times=2)
    assert ["response_format" in body for body in script.bodies] == [True, False, False]
    assert (first.attempts, second.attempts) == (2, 1)
    assert script.times == [0.0, 0.0, 0.0]


def test_a_schema_is_given_up_once() -> None:
    refused = Reply.error(400, "response_format is not supported")
    error = refusal(Script(refused))
    assert error.status == 400
    assert error.answer is not None
    assert error.answer.attempts == 2


# What is repeated


@pytest.mark.parametrize(
    "fault",
    [
        *(Reply.error(status, "later") for status in (408, 429, 500, 502, 503, 504, 529)),
        httpx.ConnectError("refused"),
        httpx.ReadError(""),
        httpx.RemoteProtocolError("peer closed connection"),
        httpx.ReadTimeout("slow"),
        Reply(b'{"choices": [{"message": {"content": "{'),
        Reply(b""),
        Reply(b"<html>a proxy</html>"),
        Reply(b"[1]"),
        Reply(b"[" * 100_000),
        Reply(b"\xff\xfe"),
        Reply.of(None, choices=[], error={"message": "overloaded", "code": 503}),
        Reply(completion(TEXT), delay=9999.0),
    ],
    ids=repr,
)
def test_what_may_pass_is_repeated(fault: Reply | Exception) -> None:
    script = Script(fault, fault, Reply.of(TEXT))
    (answer,) = ask(script)
    assert answer.text == TEXT
    assert answer.attempts == len(script.requests) == 3
    error = refusal(Script(fault), max_retries=2)
    assert error.answer is not None
    assert error.answer.attempts == 3
    assert str(error).startswith(f"{URL}/chat/completions: ")
    assert str(error).endswith(" (after 3 requests)")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Reply.error(400, "context length"), "400 Bad Request: context length"),
        (Reply.error(401, "no key"), "401 Unauthorized: no key"),
        (Reply.error(403, "no"), "403 Forbidden: no"),
        (Reply.error(404, "no model 'judge'"), "404 Not Found: no model 'judge'"),
        (Reply(b'{"detail": "gone"}', 410), "410 Gone: gone"),
        (Reply(b"plain\n words", 418), "418 I'm a Teapot: plain words"),
        (Reply(b"", 499), "499"),
        (
            Reply(b"", 307, {"location": "https://user:pw@elsewhere.example"}),
            "307 Temporary Redirect: redirects are not followed",
        ),
        (
            Reply(completion(TEXT), headers={"content-encoding": "gzip"}),
            "the body is packed with gzip, unasked",
        ),
        (
            Reply.of(None, choices=[], error={"message": "no credit", "code": 402}),
            "the server reports an error: no credit",
        ),
        (httpx.LocalProtocolError("bad header"), "LocalProtocolError: bad header"),
    ],
    ids=repr,
)
def test_what_will_not_pass_is_not_repeated(fault: Reply | Exception, words: str) -> None:
    script = Script(fault)
    error = refusal(script)
    assert len(script.requests) == 1
    assert str(error) == f"{URL}/chat/completions: {words}"
    if isinstance(fault, Reply) and fault.status != 200:
        assert error.status == fault.status
    assert error.__cause__ is None


def test_a_servers_words_are_cut() -> None:
    words = str(refusal(Script(Reply.error(400, "x" * 5000)))).partition("400 Bad Request: ")[2]
    assert words == "x" * 197 + "..."


# Pauses


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("Mon, 99 Foo 2026 00:00:00 GMT", None),
        (None, None),
    ],
)
def test_what_retry_after_asks_for(told: str | None, seconds: float | None) -> None:
    headers = {"date": formatdate(1_000_000, usegmt=True)}
    if told is not None:
        headers["retry-after"] = told
    assert retry_after(headers) == seconds


def test_a_date_without_the_servers_clock_is_read_by_ours() -> None:
    asked = retry_after({"retry-after": formatdate(None, usegmt=True)})
    assert asked is not None
    assert 0.0 <= asked < 60.0


def test_pauses_double_and_are_bounded() -> None:
    random = Random(0)

    def drawn(failures: int, asked: float | None) -> list[float]:
        return [
            pause(failures, base=1.0, longest=60.0, asked=asked, random=random) for _ in range(2000)
        ]

    for failures, widest in ((1, 1.0), (2, 2.0), (5, 16.0), (9, 60.0), (10_000, 60.0)):
        seconds = drawn(failures, None)
        assert 0.0 <= min(seconds) < 0.01 * widest
        assert 0.99 * widest < max(seconds) <= widest
    asked = drawn(1, 10.0)
    assert min(asked) >= 10.0
    assert max(asked) <= 11.0
    assert max(drawn(1, 1e9)) <= 61.0


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_waited_for(status: int) -> None:
    script = Script(Reply.error(status, "later", headers={"retry-after": "7"}), Reply.of(TEXT))
    (answer,) = ask(script, backoff=0.0)
    assert script.times == [0.0, 7.0]
    assert answer.latency == 7.0


def test_retry_after_is_capped() -> None:
    script = Script(Reply.error(429, "x", headers={"retry-after": "86400"}), Reply.of(TEXT))
    ask(script, backoff=0.0, longest_pause=20.0)
    assert script.times == [0.0, 20.0]


def test_one_request_has_a_deadline_to_its_last_byte() -> None:
    script = Script(Reply(completion(TEXT), delay=50.0), Reply.of(TEXT))
    (answer,) = ask(script, timeout=30.0, backoff=0.0)
    assert script.times == [0.0, 30.0]
    assert answer.attempts == 2


# Accounts


@pytest.mark.parametrize(
    ("usage", "prices", "wanted"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 4}, {}, (10, 4, None)),
        (
            {"prompt_tokens": 10, "completion_tokens": 4},
            {"input_price": 2.0, "output_price": 8.0},
            (10, 4, 52e-6),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "cost": 0.5},
            {"input_price": 2.0, "output_price": 8.0},
            (10, 4, 0.5),
        ),
        ({"prompt_tokens": 10}, {"input_price": 2.0, "output_price": 8.0}, (10, None, None)),
        ({}, {}, (None, None, None)),
        (
            {"prompt_tokens": True, "completion_tokens": -4, "cost": "1"},
            {},
            (None, None, None),
        ),
        ({"prompt_tokens": 1.5, "completion_tokens": "7", "cost": -1.0}, {}, (None, None, None)),
        (
            {"prompt_tokens": 10**400, "completion_tokens": 2**64, "cost": 10**400},
            {},
            (None, None, None),
        ),
    ],
)
def test_tokens_and_cost(usage: dict, prices: dict, wanted: tuple) -> None:
    (answer,) = ask(Script(Reply.of(TEXT, usage=usage)), **prices)
    found = answer.input_tokens, answer.output_tokens, answer.cost
    assert found == pytest.approx(wanted) if wanted[2] else found == wanted


def test_tokens_of_all_requests_are_counted() -> None:
    spent = {"prompt_tokens": 5, "completion_tokens": 1, "cost": 0.25}
    late = Reply.of(None, choices=[], error={"message": "x", "code": 503}, usage=spent)
    (answer,) = ask(Script(late, late, Reply.of(TEXT, usage={"completion_tokens": 3})))
    assert (answer.input_tokens, answer.output_tokens, answer.cost) == (10, 5, 0.5)


def test_a_verdict_that_was_cut_says_so_and_is_accounted_for() -> None:
    script = Script(Reply.of(TEXT[:40], finish_reason="length"))
    error = refusal(script, max_tokens=16)
    assert "the verdict was cut: finish_reason is length (max_tokens is 16)" in str(error)
    assert len(script.requests) == 1
    assert error.answer is not None
    assert error.answer.text == ""
    assert error.answer.output_tokens == 20


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [7]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": null, "refusal": "no"}}]}',
        b'{"choices": [{"message": {"content": 7}}], "usage": [1], "model": 3}',
    ],
)
def test_an_answer_without_content_is_empty(body: bytes) -> None:
    (answer,) = ask(Script(Reply(body)))
    assert answer.text == ""
    assert answer.model == "judge"


def test_content_in_parts_is_joined() -> None:
    parts = [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": "{"},
        {"type": "text", "text": "}"},
        "x",
    ]
    message = {"message": {"content": parts}}
    assert ask(Script(Reply.of(None, choices=[message])))[0].text == "{}"


def test_transcripts_have_names_of_their_own() -> None:
    first, second = ask(Script(Reply.of(TEXT)), times=2)
    assert first.trace_id != second.trace_id


# What is refused at the start, and what is never shown


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://user:sk-never-shown@host/v1", "no credentials"),
        ("https://sk-never-shown@host/v1", "no credentials"),
        ("https://host/v1?key=sk-never-shown", "no query and no fragment"),
        ("https://host/v1#sk-never-shown", "no query and no fragment"),
        ("ftp://host/v1", "http:// or https://"),
        ("host/v1", "http:// or https://"),
        ("https:///v1", "a host"),
        ("user:sk-never-shown@host/v1", "http:// or https://"),
        ("https://host:port/v1", "a URL"),
        (7, "a URL"),
    ],
)
def test_a_base_url_is_an_address_and_nothing_else(url: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        HttpGrader(url, "judge")
    assert "never-shown" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be an integer, at least 1; got 0"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"timeout": 0}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"max_chars": 0}, "max_chars"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"backoff": -1}, "backoff"),
        ({"longest_pause": float("inf")}, "longest_pause"),
        ({"input_price": 1.0}, "together"),
        ({"input_price": -1.0, "output_price": 1.0}, "input_price"),
        ({"options": {"model": "x", "stream": True}}, "must not hold model, stream"),
        ({"api_key": f"{KEY}\nx"}, "printable ASCII"),
        ({"api_key": f"{KEY}é"}, "printable ASCII"),
        ({"api_key": f"{KEY} {KEY}"}, "printable ASCII"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        HttpGrader(URL, "judge", **options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        Reply.error(401, f"Incorrect API key: {KEY}"),
        Reply.error(401, "x" * 190 + KEY),  # must not be cut in its middle either
        Reply(f"who is {KEY}?".encode(), 403),
        Reply.of(None, choices=[], error={"message": KEY, "code": 1}),
        httpx.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'"),
        httpx.ReadError(KEY),
    ],
    ids=repr,
)
def test_the_key_is_in_no_message(fault: Reply | Exception) -> None:
    error = refusal(Script(fault), api_key=KEY, max_retries=0)
    shown = "".join(traceback.format_exception(error)) + repr(error.answer)
    assert KEY[:8] not in shown
    assert str(error)


def test_the_key_is_in_no_repr() -> None:
    grader = HttpGrader(URL + "/", "judge", api_key=KEY)
    assert repr(grader) == f"HttpGrader('{URL}/chat/completions', 'judge')"
    assert KEY not in repr(vars(grader)) + str(grader) + repr(grader._poster._client.headers)
    assert KEY not in repr(vars(grader._poster)["_client"])


def test_without_httpx_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "import advlib.grading as grading\n"
        "try: grading.HttpGrader('https://host/v1', 'judge')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "HttpGrader needs httpx: pip install 'advlib[grade]'"


# Over real sockets


@pytest.fixture
def serve() -> Iterator[Callable[..., GraderServer]]:
    servers = []

    def start(*replies: Reply) -> GraderServer:
        script = list(replies)
        servers.append(
            GraderServer(lambda call: script.pop(0) if len(script) > 1 else script[0]).__enter__()
        )
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()
    gc.collect()  # a socket that was not closed would warn here


def ask_server(server: GraderServer, **options: Any) -> Answer:
    async def main() -> Answer:
        options.setdefault("backoff", 0.0)
        async with HttpGrader(server.url, "judge", **options) as grader:
            return await grader(small.group())

    return asyncio.run(main())


@pytest.mark.parametrize(
    "fault",
    [
        Reply(completion(TEXT), cut=0),
        Reply(completion(TEXT), cut=50),
        Reply(completion(TEXT), cut=50, length=False),
        Reply.error(503, "later"),
        Reply.error(429, "later", headers={"retry-after": "0"}),
    ],
    ids=["no byte", "within the body", "without a length", "503", "429"],
)
def test_a_connection_that_drops_is_tried_again(
    serve: Callable[..., GraderServer], fault: Reply
) -> None:
    server = serve(fault, Reply.of(TEXT))
    answer = ask_server(server)
    assert answer.text == TEXT
    assert answer.attempts == 2 == len(server.calls)


def test_a_body_that_is_too_long_is_cut_off_and_refused(
    serve: Callable[..., GraderServer],
) -> None:
    server = serve(Reply.of("x" * 200_000))
    with pytest.raises(GraderError, match="the body is longer than 100000 bytes"):
        ask_server(server, max_bytes=100_000)
    assert len(server.calls) == 1
    assert ask_server(server, max_bytes=250_000).text == "x" * 200_000


def test_a_long_error_is_read_in_part(serve: Callable[..., GraderServer]) -> None:
    server = serve(Reply(b"no " * 1_000_000, 400))
    with pytest.raises(GraderError, match=r"400 Bad Request: no no .*no\.\.\.$"):
        ask_server(server)


def test_a_server_that_hangs_is_given_up(serve: Callable[..., GraderServer]) -> None:
    server = serve(Reply(b"", hang=True))
    with pytest.raises(GraderError, match=r"no answer within 0\.05 s \(after 2 requests\)"):
        ask_server(server, timeout=0.05, max_retries=1)


def test_nobody_at_the_address() -> None:
    with GraderServer(lambda call: Reply.of(TEXT)) as server:
        url = server.url

    async def main() -> None:
        async with HttpGrader(url, "judge", backoff=0.0, max_retries=1) as grader:
            await grader(small.group())

    with pytest.raises(GraderError, match=r"ConnectError: .*\(after 2 requests\)"):
        asyncio.run(main())


def test_certificates_are_checked() -> None:
    grader = HttpGrader(URL, "judge")
    context = grader._poster._client._transport._pool._ssl_context  # type: ignore[attr-defined]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
