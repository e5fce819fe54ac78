"""Translates the errors, refusals and redirects that come through s3fs from botocore and aiohttp.

Rule: every error that botocore or aiohttp raises for a request is one of `CLIENT_ERRORS`, and is
translated to one of `penstock.errors`. If AWS answers with a redirect, botocore gets it: botocore
finds the bucket's region by itself, and builds the bucket's address in that region. A redirect of
any other store is an error. aiohttp alone would follow any redirect to any host, with the session
token in the request. Owner: the s3fs client.
"""

import re
from typing import Any, Final

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointProviderError,
    HTTPClientError,
    MissingDependencyException,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
    UnsupportedS3ConfigurationError,
)

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.stores.names import name, section_of
from penstock.adapters.stores.refusals import (
    REDIRECTS,
    implausible_answer,
    no_answer,
    no_credentials,
    redirected,
    refusal,
)
from penstock.errors import PenstockError, Poison
from penstock.ports import Location

# `ValueError` is among them because it is raised if the date of an answer cannot be read.
CLIENT_ERRORS = (
    ClientError,
    BotoCoreError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)")
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn")


def refused_with(error: Exception) -> int:
    """The status of a refusal; 0 for other errors."""
    return status_of(error.response) if isinstance(error, ClientError) else 0


def status_of(answer: dict[str, Any]) -> int:
    status: int = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def sent(answer: dict[str, Any]) -> tuple[int, int]:
    """The half-open range of bytes that the answer announces; without a 206 the range begins at
    byte 0.
    """
    found = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
    length = answer.get("ContentLength")
    if status_of(answer) != 206 or found is None:
        return 0, length or 0
    start = int(found[1])
    return start, int(found[2]) + 1 if length is None else start + length


def translated(error: Exception, location: Location) -> PenstockError:
    """Our error for an error of botocore or aiohttp."""
    if isinstance(error, ClientError):
        metadata = error.response.get("ResponseMetadata", {})
        code = error.response.get("Error", {}).get("Code", "")
        retry_after = metadata.get("HTTPHeaders", {}).get("retry-after", "")
        return refusal(
            location,
            status_of(error.response) or 500,
            # if the answer has no body, botocore gives the status as the code
            "" if code.isdigit() else code,
            float(retry_after) if retry_after.isdigit() else None,
        )
    if isinstance(error, ParamValidationError):
        return Poison("not_found", f"{name(location)}: S3 allows no such name")
    if isinstance(error, MissingDependencyException):
        # An access point of several regions is signed by SigV4A, which botocore takes from awscrt.
        return Poison("forbidden", f"{name(location)}: pip install awscrt ({error})")
    if isinstance(error, EndpointProviderError | UnsupportedS3ConfigurationError):
        return Poison("not_found", f"{name(location)}: {error}")
    if isinstance(error, NoCredentialsError | ProfileNotFound | CredentialRetrievalError):
        return no_credentials(error, section_of(location))
    if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), Redirected):
        return redirected(location)
    if isinstance(error, ValueError) or type(error) is HTTPClientError:
        return implausible_answer(location, error)
    return untrusted(str(error), f"{section_of(location)}.ssl_cafile") or no_answer(location, error)


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
    """aiobotocore's HTTP session, changed so that it never follows a redirect. It is a subclass,
    because aiobotocore has no setting for redirects.
    """

    async def _get_session(self, proxy_url: str | None) -> _NoRedirects:
        return _NoRedirects(await super()._get_session(proxy_url))
