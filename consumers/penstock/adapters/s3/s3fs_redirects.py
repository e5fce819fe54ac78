"""aiobotocore's HTTP session, changed so that it never follows a redirect.

Rule: a redirect that AWS answers goes to botocore, which finds the bucket's region by itself, and
builds the bucket's address in that region. A redirect of any other store is an error. aiohttp alone
would follow any redirect to any host, with the session token in the request. Owner: the s3fs
client.
"""

from typing import Any, Final

from aiobotocore.httpsession import AIOHTTPSession

from penstock.adapters.stores.refusals import REDIRECTS

_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn")


class Redirected(Exception):
    """The store answered with a redirect."""


class _NoRedirects:
    """The part of an aiohttp session that aiobotocore uses."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, *args: Any, **options: Any) -> Any:
        answer = await self._session.request(*args, **options, allow_redirects=False)
        if answer.status in REDIRECTS and not (answer.url.host or "").endswith(_AWS):
            answer.close()
            raise Redirected(answer.status)
        return answer


class NoRedirectSession(AIOHTTPSession):  # type: ignore[misc]
    """A subclass, because aiobotocore has no setting for redirects."""

    async def _get_session(self, proxy_url: str | None) -> _NoRedirects:
        return _NoRedirects(await super()._get_session(proxy_url))
