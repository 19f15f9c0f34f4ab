"""Asking a service over HTTP: JSON there and back, with retries, bounded answers, and no secret in an error.

An endpoint can be sent to another process: it holds addresses and names, and makes its connections where it is used. How long
a call may take altogether is the business of whoever runs it; a reward manager ends it at its deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rl_core.errors import RlError

if TYPE_CHECKING:
    import httpx

MAX_BODY_BYTES = 16 << 20
_QUOTED = 500
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})

_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()
"""Connections belong to the loop that made them."""


class EndpointError(RlError):
    """The service did not answer, or not with what was asked for."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that takes JSON.

    Attributes:
        url: of the service.
        api_key_env: name of the environment variable with the key, sent as a bearer token; None sends none.
        retries: how often a request is repeated that failed on the way, or that the service asks to repeat.
        timeout_s: deadline of one attempt.
    """

    url: str
    api_key_env: str | None = None
    retries: int = 3
    timeout_s: float = 120.0

    async def post(self, payload: Any, path: str = "") -> Any:
        """The answer to one request, read as JSON.

        Args:
            payload: becomes JSON.
            path: after the address, such as ``/chat/completions``.

        Raises:
            EndpointError: no usable answer after all retries; names the address, the status and the beginning of the answer.
        """
        import httpx  # noqa: PLC0415 - loaded where something is asked, not where an endpoint is configured

        url = self.url.rstrip("/") + path if path else self.url
        body = json.dumps(payload, default=_plain).encode()
        problem = "it was not asked"
        for attempt in range(self.retries + 1):
            pause_s = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
            try:
                status, headers, answer = await self._ask(url, body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if status < 300:
                    return _read(url, answer)
                problem = f"status {status}: {answer[:_QUOTED].decode(errors='replace')}"
                if status not in _RETRIED:
                    break
                pause_s = _asked_pause(headers, pause_s)
            if attempt < self.retries:
                await asyncio.sleep(pause_s)
        msg = f"{url} did not answer: {problem}"
        raise EndpointError(msg)

    async def _ask(self, url: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"content-type": "application/json"}
        if self.api_key_env is not None:
            key = os.environ.get(self.api_key_env)
            if not key:
                msg = f"the key for {url} is to be in the environment variable {self.api_key_env}, which is not set"
                raise EndpointError(msg)
            headers["authorization"] = f"Bearer {key}"
        async with _client().stream("POST", url, content=body, headers=headers, timeout=self.timeout_s) as response:
            answer = bytearray()
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > MAX_BODY_BYTES:
                    msg = f"{url} answered with more than {MAX_BODY_BYTES:,} bytes"
                    raise EndpointError(msg)
            return response.status_code, response.headers, bytes(answer)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a chat model said.

    Attributes:
        text: of the first choice.
        total_tokens: of prompt and answer; None where the service does not say.
    """

    text: str
    total_tokens: int | None


async def ask_chat(
    endpoint: Endpoint, model: str, messages: Sequence[Mapping[str, Any]], **parameters: Any
) -> ChatAnswer:
    """One answer of an OpenAI-compatible service.

    Args:
        endpoint: its address up to ``/v1``.
        model: as the service names it.
        messages: the conversation.
        parameters: of the request, such as ``temperature`` and ``max_tokens``.

    Raises:
        EndpointError: no usable answer.
    """
    answer = await endpoint.post({"model": model, "messages": list(messages), **parameters}, "/chat/completions")
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        msg = f"{endpoint.url} did not answer as a chat service does: {json.dumps(answer)[:_QUOTED]}"
        raise EndpointError(msg) from error
    tokens = (answer.get("usage") or {}).get("total_tokens")
    return ChatAnswer(text or "", tokens if isinstance(tokens, int) else None)


def _client() -> httpx.AsyncClient:
    import httpx  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()
    if loop not in _CLIENTS:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        _CLIENTS[loop] = httpx.AsyncClient(limits=limits)
    return _CLIENTS[loop]


def _read(url: str, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        msg = f"{url} did not answer with JSON: {answer[:_QUOTED].decode(errors='replace')}"
        raise EndpointError(msg) from error


def _asked_pause(headers: Mapping[str, str], otherwise: float) -> float:
    """Seconds that the service asks for; a date, or nothing, leaves the pause as it is."""
    try:
        return min(max(float(headers.get("retry-after", "")), 0.0), _LONGEST_PAUSE_S)
    except ValueError:
        return otherwise


def _plain(value: Any) -> Any:
    """What JSON has no form for: arrays and numpy numbers as lists and numbers, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
