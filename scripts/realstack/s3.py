"""A client of an object store, independent of Penstock's own, for filling buckets and looking into
them.

Rule: all such clients are made here. Owner: the caller, who closes it.
"""

from typing import Any

import botocore.session


def client(
    url: str | None, key: str | None, secret: str | None, region: str | None = None, **more: Any
) -> Any:
    """`more`: further arguments of botocore's `create_client`."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=url,
        region_name=region or "us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        **more,
    )
