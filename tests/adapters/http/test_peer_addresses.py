"""How `http.peers` names pages."""

import pytest

from penstock.adapters.http.running_worker import Address, address_of
from penstock.errors import Fatal


def test_addresses_are_a_host_with_or_without_a_port() -> None:
    assert address_of("10.0.0.5:9000", 8900) == Address("10.0.0.5", 9000)
    assert address_of("penstock.ns.svc", 8900) == Address("penstock.ns.svc", 8900)
    assert address_of("[::1]:8901", 8900) == Address("::1", 8901)
    for wrong in ("", "http://x:1", "x:y", "x/path", "user@x:1"):
        with pytest.raises(Fatal, match=r"http\.peers"):
            address_of(wrong, 8900)
