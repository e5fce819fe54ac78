"""The time that an HTTP server has, by the header `Date` of its answer.

Rule: a server that does not tell its time, or does not answer, is no failure here. Owner: `penstock
doctor`.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime

import aiohttp

WAIT = aiohttp.ClientTimeout(total=5)


async def time_of(url: str) -> datetime | None:
    """The server's time, exact to a second; None if its answer does not tell it."""
    try:
        async with (
            aiohttp.ClientSession(timeout=WAIT) as session,
            session.head(url, allow_redirects=False) as response,
        ):
            text = response.headers.get("Date")
            return parsedate_to_datetime(text) if text else None
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
