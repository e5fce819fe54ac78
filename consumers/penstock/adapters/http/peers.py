"""Where the pages are that `http.peers` names: each as host:port, or by a name of many hosts.

Rule: a name is resolved each time, as members come and go. Owner: the page, and
`penstock trace`.
"""

import asyncio
import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import usage

RESOLVE_S: Final = 2.0
# A worker listens there if its configuration says nothing else.
PORT: Final = 8900


class Address(NamedTuple):
    """An IP address, or a name that may have many."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(text: str, port: int) -> Address:
    """`port`: where none is named."""
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
    """The IP addresses behind a name. A worker answers to its address, but knows no other names of
    itself. Raises `OSError` or `UnicodeError` if there is none.
    """
    async with asyncio.timeout(RESOLVE_S):
        found = await asyncio.get_running_loop().getaddrinfo(
            named.host, named.port, type=socket.SOCK_STREAM
        )
    return [Address(str(where[0]), named.port) for *_, where in found]
