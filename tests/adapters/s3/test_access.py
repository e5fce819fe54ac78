"""Where a bucket of S3 is, whose credentials are sent there, and that the direct way has both."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.adapters.memory import MemoryObjects
from penstock.adapters.s3.buckets import address_of
from penstock.adapters.s3.direct_get import Credentials, CredentialSource, DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.errors import EXIT_USAGE, Fatal, LockedOut
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import read
from tests.adapters.stores.s3_stub import Refusal, S3Stub

VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
HOST = "store.example"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No credentials but those of the test: the path of its file."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return file


def written(file: Path, key: str, token: str) -> None:
    file.write_text(
        f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\n"
        f"aws_session_token={token}\n[other]\nregion=eu-west-3\n"
    )


@pytest.mark.parametrize(
    ("settings", "region", "bucket", "address"),
    [
        ({}, "eu-west-1", "cams", ("https://cams.s3.eu-west-1.amazonaws.com", "")),
        ({}, "eu-west-1", "a.b", ("https://s3.eu-west-1.amazonaws.com", "/a.b")),
        ({}, "eu-west-1", "Upper", ("https://s3.eu-west-1.amazonaws.com", "/Upper")),
        (
            {"addressing": "path"},
            "us-east-1",
            "b-1",
            ("https://s3.us-east-1.amazonaws.com", "/b-1"),
        ),
        ({}, "cn-north-1", "cams", ("https://cams.s3.cn-north-1.amazonaws.com.cn", "")),
        ({"endpoint_url": "http://h:9000"}, "r", "cams", ("http://h:9000", "/cams")),
        ({"endpoint_url": "http://h:9000/s3/"}, "r", "cams", ("http://h:9000", "/s3/cams")),
        (
            {"endpoint_url": "https://h:9000", "addressing": "virtual"},
            "r",
            "cams",
            ("https://cams.h:9000", ""),
        ),
        ({"endpoint_url": "http://h", "addressing": "virtual"}, "r", "a.b", ("http://h", "/a.b")),
    ],
)
def test_a_bucket_is_where_its_store_wants_it(
    settings: dict[str, Any], region: str, bucket: str, address: tuple[str, str]
) -> None:
    assert address_of(config.Objects(**settings), region, bucket) == address


CLIENTS: dict[str, Callable[[config.Objects], Objects]] = {
    "direct": lambda settings: DirectObjects(MemoryObjects(), settings),
    "obstore": ObstoreObjects,
    "s3fs": S3fsObjects,
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
async def test_a_session_token_is_sent_and_signed(client: Callable[..., Objects]) -> None:
    async with S3Stub({"k": b"x"}) as stub:
        settings = config.Objects(endpoint_url=stub.url, key="k", secret="s", token="the token")
        objects = client(settings)
        assert await read(objects, Location("bucket", "k")) == b"x"
        await objects.aclose()
    headers = stub.seen[0].headers
    assert headers["X-Amz-Security-Token"] == "the token"
    assert "x-amz-security-token" in headers["Authorization"]


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
async def test_the_chain_is_asked_where_nothing_is_configured(
    client: Callable[..., Objects], nobody: Path
) -> None:
    written(nobody, "of-the-file", "token-of-the-file")
    async with S3Stub({"k": b"x"}) as stub:
        objects = client(config.Objects(endpoint_url=stub.url))
        assert await read(objects, Location("bucket", "k")) == b"x"
        await objects.aclose()
    headers = stub.seen[0].headers
    assert "Credential=of-the-file/" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "token-of-the-file"


async def test_on_virtual_hosts_the_direct_way_names_the_bucket_in_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = socket.getaddrinfo

    def here(host: Any, *more: Any, **named: Any) -> Any:
        is_ours = isinstance(host, str) and host.endswith(HOST)
        return found("127.0.0.1" if is_ours else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    # The stub takes the first part of a path for its bucket.
    async with S3Stub({"b/k": b"x"}) as stub:
        endpoint = stub.url.replace("127.0.0.1", HOST)
        settings = config.Objects(endpoint_url=endpoint, key="k", secret="s", addressing="virtual")
        behind = MemoryObjects()
        objects = DirectObjects(behind, settings)
        for bucket in ("one", "two", "one"):
            assert await read(objects, Location(bucket, "a/b/k")) == b"x"
        await objects.aclose()
    hosts = [seen.headers["Host"] for seen in stub.seen]
    assert [host.partition(":")[0] for host in hosts] == [
        f"{b}.{HOST}" for b in ("one", "two", "one")
    ]
    assert behind.opened == []


def test_the_region_of_the_profile_counts(nobody: Path) -> None:
    written(nobody, "k", "t")
    (nobody.parent / "config").write_text("[profile other]\nregion=eu-west-3\n")
    assert (
        CredentialSource(config.Objects(profile="other", anon=True), "objects").region
        == "eu-west-3"
    )
    assert CredentialSource(config.Objects(), "objects").region == "us-east-1"
    assert CredentialSource(config.Objects(region="r"), "objects").region == "r"


def test_a_profile_that_is_not_there_is_a_setting_to_mend() -> None:
    with pytest.raises(Fatal, match=r"stores\.eu\.profile") as caught:
        CredentialSource(config.Objects(profile="nobody"), "stores.eu")
    assert caught.value.exit_code == EXIT_USAGE


async def test_credentials_of_a_file_are_taken_again_after_the_store_refused_them(
    nobody: Path,
) -> None:
    written(nobody, "old", "1")
    keys = CredentialSource(config.Objects(), "objects")
    assert await keys.ask() == Credentials("old", "s", "1")
    written(nobody, "new", "2")
    assert keys.at_hand == Credentials("old", "s", "1")
    keys.look_again()
    assert keys.at_hand is None
    assert await keys.ask() == Credentials("new", "s", "2")


async def test_credentials_that_only_the_client_behind_has_renewed_are_looked_for_again(
    nobody: Path,
) -> None:
    written(nobody, "old", "1")
    behind = MemoryObjects()
    behind.put("bucket", "k", b"from behind")
    async with S3Stub({"k": b"x"}) as stub:
        objects = DirectObjects(behind, config.Objects(endpoint_url=stub.url))
        assert await read(objects, Location("bucket", "k")) == b"x"
        written(nobody, "new", "2")
        stub.next.append(Refusal(400, "ExpiredToken"))
        for expected in (b"from behind", b"x"):
            assert await read(objects, Location("bucket", "k")) == expected
        await objects.aclose()
    assert [seen.headers["X-Amz-Security-Token"] for seen in stub.seen] == ["1", "1", "2"]


async def test_a_host_that_never_took_the_credentials_is_no_reason_to_look_for_others(
    nobody: Path,
) -> None:
    """A bucket of another region answers 400, time and again; the client behind can read it."""
    written(nobody, "old", "1")
    behind = MemoryObjects()
    behind.put("bucket", "k", b"from behind")
    async with S3Stub({"k": b"x"}) as stub:
        objects = DirectObjects(behind, config.Objects(endpoint_url=stub.url))
        written(nobody, "new", "2")
        stub.next.extend([Refusal(400, "AuthorizationHeaderMalformed")] * 2)
        for _ in range(2):
            assert await read(objects, Location("bucket", "k")) == b"from behind"
        await objects.aclose()
    assert [seen.headers["X-Amz-Security-Token"] for seen in stub.seen] == ["1", "1"]


async def test_what_the_client_behind_finds_expired_is_looked_for_again(nobody: Path) -> None:
    written(nobody, "old", "1")
    behind = MemoryObjects()

    async def locked_out(_: Location) -> None:
        raise LockedOut("ExpiredToken")

    behind.on_open = locked_out
    async with S3Stub({}) as stub:
        stub.next.extend([Refusal(400, "ExpiredToken")] * 2)
        objects = DirectObjects(behind, config.Objects(endpoint_url=stub.url))
        with pytest.raises(LockedOut):
            await objects.open(Location("bucket", "k"))
        written(nobody, "new", "2")
        with pytest.raises(LockedOut):
            await objects.open(Location("bucket", "k"))
        await objects.aclose()
    assert [seen.headers["X-Amz-Security-Token"] for seen in stub.seen] == ["1", "2"]
