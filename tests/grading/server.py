"""A grader's server on the loopback: real sockets, replies as they are told, and every fault.

    with GraderServer(lambda call: Reply.of(verdict_text)) as server:
        HttpGrader(server.url, "model")

It runs in a thread of its own and keeps an account: each request in ``calls``, how many requests a
prompt had in ``counts``, connections that are open, and requests that hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from advlib.grading import CandidateGroup, grading_messages


class Call(NamedTuple):
    """One request.

    Attributes:
        name: what the prompt is known as, see :func:`names`; its digest where it is not known.
        attempt: how many requests this prompt has had, this one included.
        body: the request.
        headers: with lower-case names.
    """

    name: str
    attempt: int
    body: dict[str, Any]
    headers: dict[str, str]


class Reply(NamedTuple):
    """What is sent back.

    Attributes:
        body: as it is, whatever it holds.
        status: of the response.
        headers: further ones.
        delay: seconds before the first byte.
        cut: bytes of the body after which the connection is dropped, None for none.
        hang: no byte is ever sent; the connection stays until the client gives up.
        length: whether the length is told; without it the end of the connection ends the body.
    """

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    cut: int | None = None
    hang: bool = False
    length: bool = True

    @classmethod
    def of(cls, text: str | None, **fields: Any) -> Reply:
        """A completion with this text."""
        return cls(completion(text, **fields))

    @classmethod
    def error(cls, status: int, message: str, **fields: Any) -> Reply:
        """An error as OpenAI words it."""
        body = {"error": {"message": message, "type": "error", "code": None}}
        return cls(json.dumps(body).encode(), status, **fields)


def completion(
    text: str | None,
    *,
    finish_reason: str = "stop",
    usage: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "made-grader",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20} if usage is None else usage,
    }
    return json.dumps({**body, **fields}).encode()


def digest(messages: list[dict[str, str]]) -> str:
    """What a prompt is told apart by."""
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


def names(groups: Iterable[CandidateGroup]) -> dict[str, str]:
    """The digest of each group's prompt to the group's id, which no prompt holds."""
    return {digest(grading_messages(group)): group.id for group in groups}


class GraderServer:
    """Answers ``POST /v1/chat/completions`` with what ``reply`` makes of each call."""

    def __init__(
        self, reply: Callable[[Call], Reply], *, names: Mapping[str, str] | None = None
    ) -> None:
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.open = 0
        self.hanging = 0
        self.failures: list[BaseException] = []
        self.port = 0
        self._reply = reply
        self._names = names or {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        """What a grader takes as its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self.failures, self.failures

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while (call := await self._request(reader)) and await self._answer(
                self._reply(call), reader, writer
            ):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        except Exception as error:  # of a test's own reply
            self.failures.append(error)
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader) -> Call | None:
        head = await reader.readline()
        if not head:
            return None
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1"), head
        headers = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        key = digest(body["messages"])
        name = self._names.get(key, key)
        self.counts[name] += 1
        call = Call(name, self.counts[name], body, headers)
        self.calls.append(call)
        return call

    async def _answer(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Sends a reply, and says whether the connection stays."""
        if reply.hang:
            self.hanging += 1
            try:
                await reader.read()
            finally:
                self.hanging -= 1
            return False
        await asyncio.sleep(reply.delay)
        headers = {"content-type": "application/json", **reply.headers}
        if reply.length:
            headers["content-length"] = str(len(reply.body))
        head = f"HTTP/1.1 {reply.status} Told\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(head.encode() + b"\r\n" + reply.body[: reply.cut])
        await writer.drain()
        return reply.cut is None and reply.length
