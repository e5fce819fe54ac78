"""How an error names what was asked for."""

import pytest

from penstock.adapters.stores.names import name
from penstock.ports import PROBE, Location


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Location("b", "a/1.csv"), "object 'a/1.csv' in bucket 'b'"),
        (PROBE, "a first question"),
        (PROBE._replace(bucket="b", store="eu"), "a first question to bucket 'b' of the store eu"),
    ],
)
def test_what_nobody_announced_is_not_named(location: Location, text: str) -> None:
    assert name(location) == text
