"""The addresses of the workers that `http.peers` names: host:port, or one name for many hosts.

Rule: a name is resolved each time, because workers come and go. Owner: the live page, and `penstock
trace`.
"""

import asyncio
import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import usage

RESOLVE_S: Final = 2.0
# The default of `http.port`.
PORT: Final = 8900


class Address(NamedTuple):
    """A port, with an IP address or with a name that may stand for many IP addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(text: str, port: int) -> Address:
    """An entry of `http.peers`; `port` is used if the entry has none."""
    try:
        found = urlsplit(f"//{text}")
        if found.hostname and not (found.path or found.query or found.username):
            return Address(found.hostname, found.port or port)
    except ValueError:
        pass
    raise usage(
        f"http.peers: {text!r} is no address; write host:port, or the name of a headless service"
    )


async def numbers_of(named: Address) -> list[Address]:
    """The IP addresses that a name stands for. Raises `OSError` or `UnicodeError` if there are
    none.
    """
    async with asyncio.timeout(RESOLVE_S):
        found = await asyncio.get_running_loop().getaddrinfo(
            named.host, named.port, type=socket.SOCK_STREAM
        )
    return [Address(str(where[0]), named.port) for *_, where in found]
