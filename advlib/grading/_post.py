"""One request and its response, bounded in time and size; what failed, and whether it may pass."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from advlib.grading._completion import cut, one_line, server_message
from advlib.grading._endpoint import imported_httpx
from advlib.grading._retry import is_passing, retry_after

if TYPE_CHECKING:
    import httpx

_LONGEST_ERROR = 1 << 16  # bytes of an error's body that are read
_CONNECT = 30.0  # seconds; a host that does not answer at all is given up earlier than a slow one


class Failure(Exception):
    """A request that brought nothing.

    Attributes:
        again: the same request may succeed later.
        status: the HTTP status, None where there was none.
        asked: seconds that Retry-After asked for, None where it did not.
        words: what the server said, whole and without the key.
    """

    def __init__(
        self,
        message: str,
        *,
        again: bool,
        status: int | None = None,
        asked: float | None = None,
        words: str = "",
    ) -> None:
        super().__init__(message)
        self.again = again
        self.status = status
        self.asked = asked
        self.words = words


class Response(NamedTuple):
    """A response that was taken whole, or the start of an error's."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Poster:
    """Posts JSON to one address and keeps its connections.

    Args:
        url: the address.
        key: a bearer token; empty for none.
        timeout: seconds from connecting to the last byte.
        max_bytes: a longer body is refused.
        transport: an httpx transport in place of the default one.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float,
        max_bytes: int,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        httpx = imported_httpx()
        self.url = url
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._secret = re.compile(re.escape(key)) if key else None
        # Compressed bodies are not asked for: a small one can unpack to any size.
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=False,  # the key would travel
            transport=transport,
        )

    async def post(self, body: bytes) -> Response:
        """Send one request and take a good response whole.

        Raises:
            Failure: there is none.
        """
        httpx = imported_httpx()
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._client.stream("POST", self.url, content=body) as response,
            ):
                result = await self._taken(response)
        except (TimeoutError, httpx.TimeoutException) as error:
            late = f"no answer within {self._timeout:g} s"
            connecting = isinstance(error, httpx.ConnectTimeout)
            raise Failure("no connection in time" if connecting else late, again=True) from None
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise Failure(self._told(error), again=False) from None
        except httpx.TransportError as error:
            raise Failure(self._told(error), again=True) from None
        if 200 <= result.status <= 299:
            return result
        words = self.public(server_message(result.body))
        if 300 <= result.status <= 399:
            words = "redirects are not followed"
        told = phrase(result.status)
        raise Failure(
            f"{told}: {cut(words)}" if words else told,
            again=is_passing(result.status),
            status=result.status,
            asked=retry_after(result.headers),
            words=words,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    def public(self, text: str) -> str:
        """Text of a server without the key, which some repeat; to be called before it is cut."""
        return text if self._secret is None else self._secret.sub("[key]", text)

    async def _taken(self, response: httpx.Response) -> Response:
        good = response.is_success
        limit = self._max_bytes if good else _LONGEST_ERROR
        encoding = response.headers.get("content-encoding", "identity").lower()
        if good and encoding != "identity":
            raise Failure(f"the body is packed with {cut(encoding, 20)}, unasked", again=False)
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > limit:
                if good:
                    raise Failure(f"the body is longer than {limit} bytes", again=False)
                break
        return Response(response.status_code, response.headers, bytes(body[:limit]))

    def _told(self, error: Exception) -> str:
        words = cut(self.public(one_line(str(error))))
        return f"{type(error).__name__}: {words}" if words else type(error).__name__


def phrase(status: int) -> str:
    """A status with its name: ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
