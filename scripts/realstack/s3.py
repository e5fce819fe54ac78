"""A client of an object store that is none of Penstock's own, for what surrounds a job.

Rule: made here alone; the caller closes it. Owner: the caller.
"""

from typing import Any

import botocore.session


def client(
    url: str | None, key: str | None, secret: str | None, region: str | None = None, **more: Any
) -> Any:
    """`more`: as botocore's `create_client` takes it."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=url,
        region_name=region or "us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        **more,
    )
