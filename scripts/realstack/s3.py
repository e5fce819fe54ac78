"""A botocore client of the object store, to fill buckets and to look into them.

Rule: tests and scripts make their clients here, so that they do not depend on the clients of the
package. Owner: the caller, who closes it.
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
