"""What errors and answers of botocore and aiohttp mean.

Rule: every error that botocore or aiohttp raises for a request is one of `CLIENT_ERRORS` and
becomes one of `penstock.errors`. Owner: the s3fs client.
"""

import re
from typing import Any

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
)

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.s3.s3fs_redirects import Redirected
from penstock.adapters.stores.names import name, section_of
from penstock.adapters.stores.refusals import (
    implausible_answer,
    no_answer,
    no_credentials,
    redirected,
    refusal,
)
from penstock.errors import PenstockError, Poison
from penstock.ports import Location

# A ValueError is raised for an answer whose date cannot be read.
CLIENT_ERRORS = (
    ClientError,
    BotoCoreError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)")


def refused_with(error: Exception) -> int:
    """The status of a refusal; 0 for other errors."""
    return status_of(error.response) if isinstance(error, ClientError) else 0


def status_of(answer: dict[str, Any]) -> int:
    status: int = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def sent(answer: dict[str, Any]) -> tuple[int, int]:
    """The half-open range of bytes that the answer announces; without a 206 it begins at byte 0."""
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
            "" if code.isdigit() else code,  # without a body, botocore repeats the status
            float(retry_after) if retry_after.isdigit() else None,
        )
    if isinstance(error, ParamValidationError):
        return Poison("not_found", f"{name(location)}: S3 allows no such name")
    if isinstance(error, NoCredentialsError | ProfileNotFound | CredentialRetrievalError):
        return no_credentials(error, section_of(location))
    if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), Redirected):
        return redirected(location)
    if isinstance(error, ValueError) or type(error) is HTTPClientError:
        return implausible_answer(location, error)
    return untrusted(str(error), f"{section_of(location)}.ssl_cafile") or no_answer(location, error)
