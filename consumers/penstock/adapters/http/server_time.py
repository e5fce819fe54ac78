"""Asks a server for its time, by the header `Date` of any answer."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

WAIT: Final = aiohttp.ClientTimeout(total=5)


async def server_time(url: str) -> datetime | None:
    """The server's time, exact to a second, as the header `Date` of its answer tells it. None if no
    answer comes, or if the answer does not have this header. A store refuses a signature if our
    clock is far from the store's clock.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=WAIT) as session,
            session.head(url, allow_redirects=False) as response,
        ):
            text = response.headers.get("Date")
            return parsedate_to_datetime(text) if text else None
    except (aiohttp.ClientError, TimeoutError, ValueError, OverflowError):
        return None
