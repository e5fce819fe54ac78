"""What botocore's errors mean."""

import pytest
from botocore.exceptions import ClientError

from penstock.adapters.s3.s3fs_client import translated
from penstock.errors import Overloaded
from penstock.ports import Location


@pytest.mark.parametrize(
    ("wish", "wish_s"), [("7", 7.0), ("", None), ("\u00b2", None), ("9" * 400, None)]
)
def test_a_wish_to_wait_is_a_number_of_seconds_or_none(wish: str, wish_s: float | None) -> None:
    metadata = {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": wish}}
    error = ClientError({"ResponseMetadata": metadata, "Error": {"Code": "SlowDown"}}, "GetObject")
    refusal = translated(error, Location("bucket", "key"))
    assert isinstance(refusal, Overloaded)
    assert refusal.retry_after_s == wish_s
