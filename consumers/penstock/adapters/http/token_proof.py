"""Proves to a worker that its token is known, without sending it.

Rule: a program that asks a worker cannot know who listens at the worker's address: another program
may have taken the port, or have got the address of a worker that is gone. So a program sends a
proof, which is good for one page and a few minutes. Who overhears it learns nothing but this page,
which is not encrypted either. A person gives the token itself, in the form of the live page. What
changes something is asked for with the token only.
"""

import hmac
import time
from typing import Final

from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

# The clocks of two machines may differ by so much.
MOST_S: Final = 300
_MOST_DIGITS: Final = 20
_SCHEME: Final = "Penstock "


def proof(token: str, path: str, at_s: int) -> str:
    """The header `Authorization` of a GET. `path`: with the query, as it is sent."""
    digest = hmac.digest(token.encode(), f"GET {path} at {at_s}".encode(), "sha256")
    return f"{_SCHEME}{at_s}:{digest.hex()}"


def is_proof(given: str, token: str, path: str, now_s: float) -> bool:
    at_s = given.removeprefix(_SCHEME).partition(":")[0]
    is_number = at_s.isascii() and at_s.isdigit() and len(at_s) <= _MOST_DIGITS
    if not is_number or abs(int(at_s) - now_s) > MOST_S:
        return False
    right = proof(token, path, int(at_s))
    return hmac.compare_digest(given.encode(errors="surrogateescape"), right.encode())


def proving(token: str | None) -> tuple[ClientMiddlewareType, ...]:
    """The middlewares of a session that asks workers."""

    async def prove(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        assert token is not None
        at = request.url.raw_path_qs
        request.headers["Authorization"] = proof(token, at, int(time.time()))
        return await send(request)

    return (prove,) if token else ()
