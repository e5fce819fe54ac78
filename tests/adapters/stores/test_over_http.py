"""What both S3 clients make of a store that cuts, refuses, keeps silent or takes odd keys."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.errors import EXIT_USAGE, Fatal, LockedOut, Poison, Transient, Unreachable
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import LARGE, chunks_of, read
from tests.adapters.stores.s3_stub import Cut, Refusal, S3Stub, Silence
from tests.support.waiting import until

CLIENTS = {"obstore": ObstoreObjects, "s3fs": S3fsObjects}
KEYS = {"key": "configured", "secret": "secret"}


@pytest.fixture(params=CLIENTS.values(), ids=list(CLIENTS))
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """One of the clients, without whatever AWS settings the machine has."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return request.param


class Reading:
    """A client on a stub, closed at the end: `async with Reading(client, stub) as objects`. It is
    patient: a pause of a busy machine is no silence of the store.
    """

    def __init__(
        self, client: Any, stub: S3Stub, *, read_timeout_s: float = 60.0, **settings: Any
    ) -> None:
        chosen = settings or KEYS
        self.objects: Objects = client(
            config.Objects(endpoint_url=stub.url, **chosen), read_timeout_s=read_timeout_s
        )

    async def __aenter__(self) -> Objects:
        return self.objects

    async def __aexit__(self, *_: object) -> None:
        await self.objects.aclose()


@pytest.mark.parametrize("data", [b"1,2\n" * 1000, LARGE], ids=["small", "large"])
async def test_a_cut_transfer_goes_on_under_the_same_pin(client: Any, data: bytes) -> None:
    async with S3Stub({"key": data}) as stub, Reading(client, stub) as objects:
        stub.next.append(Cut())
        assert await read(objects, Location("bucket", "key")) == data
    first, second = stub.seen
    assert "If-Match" not in first.headers
    assert second.headers["If-Match"] == '"etag-1"'
    assert second.headers["Range"].startswith("bytes=")


async def test_the_version_null_pins_nothing_so_the_entity_tag_is_asked_for_too(
    client: Any,
) -> None:
    """A bucket whose versioning is suspended calls the present version so, whatever it holds."""
    location = Location("bucket", "key", version_id="null", etag="etag-1")
    async with S3Stub({"key": b"x"}) as stub, Reading(client, stub) as objects:
        body = await objects.open(location)
        assert await chunks_of(body) == [b"x"]
        assert (body.version_id, body.etag) == (None, '"etag-1"')
        stub.etag = '"etag-2"'
        with pytest.raises(Poison) as caught:
            await objects.open(location)
    assert caught.value.code == "changed"
    assert [seen.version_id for seen in stub.seen] == ["null", "null"]


async def test_a_cut_transfer_goes_on_with_the_version_it_began_with(client: Any) -> None:
    async with S3Stub({"key": LARGE}) as stub, Reading(client, stub) as objects:
        stub.next.append(Cut())
        stub.version_id = "v7"
        assert await read(objects, Location("bucket", "key", version_id="v7")) == LARGE
    assert [seen.version_id for seen in stub.seen] == ["v7", "v7"]
    assert len(stub.seen) == 2


async def test_an_object_replaced_during_a_cut_is_changed_and_never_mixed(client: Any) -> None:
    async with S3Stub({"key": LARGE}) as stub, Reading(client, stub) as objects:
        stub.next.append(Cut())
        body = await objects.open(Location("bucket", "key"))
        stub.etag = '"etag-2"'
        with pytest.raises(Poison) as caught:
            await chunks_of(body)
    assert caught.value.code == "changed"


async def test_a_transfer_that_keeps_breaking_is_given_up(client: Any) -> None:
    async with S3Stub({"key": b"x" * 1000}) as stub, Reading(client, stub) as objects:
        stub.next.extend([Cut()] * 100)
        with pytest.raises(Unreachable):
            await read(objects, Location("bucket", "key"))
    assert 1 < len(stub.seen) < 10


async def test_without_a_pin_a_cut_transfer_does_not_go_on(client: Any) -> None:
    async with S3Stub({"key": LARGE}) as stub, Reading(client, stub) as objects:
        stub.etag = None
        stub.next.append(Cut())
        with pytest.raises(Unreachable, match="ETag"):
            await read(objects, Location("bucket", "key"))
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", "forbidden"),
        (401, "Unauthorized", "forbidden"),
        (404, "NoSuchKey", "not_found"),
        (404, "NoSuchBucket", "not_found"),
        (404, "NoSuchVersion", "changed"),
        (412, "PreconditionFailed", "changed"),
        (400, "AuthorizationHeaderMalformed", "forbidden"),
        (400, "XMinioInvalidObjectName", "not_found"),
    ],
)
async def test_a_refusal_that_waiting_cannot_mend_is_poison(
    client: Any, status: int, code: str, expected: str
) -> None:
    async with S3Stub({}) as stub, Reading(client, stub) as objects:
        stub.next.append(Refusal(status, code))
        with pytest.raises(Poison, match=code) as caught:
            await objects.open(Location("bucket", "key"))
    assert caught.value.code == expected
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "SlowDown"), (429, "TooMany"), (400, "RequestTimeout")],
)
async def test_a_refusal_that_passes_is_transient_and_left_to_the_caller(
    client: Any, status: int, code: str
) -> None:
    async with S3Stub({"key": b"x"}) as stub, Reading(client, stub) as objects:
        stub.next.append(Refusal(status, code))
        with pytest.raises(Transient, match=code) as caught:
            await objects.open(Location("bucket", "key"))
        assert not isinstance(caught.value, Unreachable)
        assert len(stub.seen) == 1
        assert await read(objects, Location("bucket", "key")) == b"x"


async def test_credentials_that_expired_are_looked_for_again(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sidecar renews the file; botocore and obstore keep what they read."""
    written = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(written))
    text = (
        "[default]\naws_access_key_id = {0}\naws_secret_access_key = s\naws_session_token = {0}\n"
    )
    written.write_text(text.format("before"))
    async with (
        S3Stub({"key": b"x"}) as stub,
        Reading(client, stub, region="us-east-1") as objects,
    ):
        assert await read(objects, Location("bucket", "key")) == b"x"
        written.write_text(text.format("after"))
        stub.next.append(Refusal(400, "ExpiredToken"))
        with pytest.raises(LockedOut, match="credentials"):
            await objects.open(Location("bucket", "key"))
        assert await read(objects, Location("bucket", "key")) == b"x"
    tokens = [seen.headers["x-amz-security-token"] for seen in stub.seen]
    assert tokens == ["before", "before", "after"]


async def test_credentials_that_expire_between_parts_are_looked_for_again(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker may read only objects that are read by parts."""
    written = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(written))
    text = (
        "[default]\naws_access_key_id = {0}\naws_secret_access_key = s\naws_session_token = {0}\n"
    )
    written.write_text(text.format("before"))
    async with (
        S3Stub({"key": b"1234"}) as stub,
        Reading(client, stub, region="us-east-1") as objects,
    ):
        assert (await objects.part(Location("bucket", "key"), 0, 2)).data == b"12"
        written.write_text(text.format("after"))
        stub.next.append(Refusal(400, "ExpiredToken"))
        assert (await objects.part(Location("bucket", "key"), 2, 4)).data == b"34"
    tokens = [seen.headers["x-amz-security-token"] for seen in stub.seen]
    assert tokens == ["before", "before", "after"]


async def test_where_no_credentials_are_found_the_old_ones_go_on(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that is being replaced does not end the worker."""
    if client is S3fsObjects:
        pytest.skip("s3fs looks when it next asks, and is asked again")
    written = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(written))
    written.write_text("[default]\naws_access_key_id = k\naws_secret_access_key = s\n")
    async with (
        S3Stub({"key": b"x"}) as stub,
        Reading(client, stub, region="us-east-1") as objects,
    ):
        written.unlink()
        stub.next.append(Refusal(400, "ExpiredToken"))
        with pytest.raises(LockedOut):
            await objects.open(Location("bucket", "key"))
        assert await read(objects, Location("bucket", "key")) == b"x"


async def test_a_store_that_keeps_silent_is_unreachable(client: Any) -> None:
    async with (
        S3Stub({"key": b"x"}) as stub,
        Reading(client, stub, read_timeout_s=0.3) as objects,
    ):
        stub.next.append(Silence())
        with pytest.raises(Unreachable, match="endpoint_url"):
            await objects.open(Location("bucket", "key"))

        async def is_read_again() -> bool:
            with suppress(Transient):  # a pause of a busy machine is silence, too
                return await read(objects, Location("bucket", "key")) == b"x"
            return False

        await until(is_read_again, lambda: "what the store has, once it speaks again")


async def test_a_store_that_is_away_is_unreachable(client: Any) -> None:
    async with S3Stub({}) as stub:
        pass
    async with Reading(client, stub) as objects:
        with pytest.raises(Unreachable, match="endpoint_url"):
            await objects.open(Location("bucket", "key"))
        with pytest.raises(Unreachable, match="endpoint_url"):
            await anext(objects.list("bucket", "*"))


@pytest.mark.parametrize(
    "key", ["a//b", "/lead", "trail/", "..", ".", "a/../b", "./a", "tab\there", "a/", "//"]
)
async def test_an_odd_key_reaches_the_store_as_it_is(client: Any, key: str) -> None:
    others = {"a/b": b"other", "lead": b"other", "trail": b"other", "b": b"other", "a": b"other"}
    async with S3Stub(others | {key: b"mine"}) as stub, Reading(client, stub) as objects:
        assert await read(objects, Location("bucket", key)) == b"mine"
    assert [seen.key for seen in stub.seen] == [key]


async def test_configured_keys_never_mix_with_the_environments_token(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    async with S3Stub({"key": b"x"}) as stub, Reading(client, stub) as objects:
        await read(objects, Location("bucket", "key"))
    assert "Credential=configured/" in stub.seen[0].headers["Authorization"]
    assert "x-amz-security-token" not in stub.seen[0].headers


async def test_without_configured_keys_the_environment_is_asked(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "its-token")
    async with S3Stub({"key": b"x"}) as stub, Reading(client, stub, region="eu-x-1") as objects:
        await read(objects, Location("bucket", "key"))
    [seen] = stub.seen
    assert "Credential=from-environment/" in seen.headers["Authorization"]
    assert "/eu-x-1/s3/" in seen.headers["Authorization"]
    assert seen.headers["x-amz-security-token"] == "its-token"


async def test_anonymous_requests_are_not_signed(client: Any) -> None:
    async with S3Stub({"key": b"x"}) as stub, Reading(client, stub, anon=True) as objects:
        await read(objects, Location("bucket", "key"))
    assert "Authorization" not in stub.seen[0].headers


async def test_without_any_credentials_it_says_what_to_set(client: Any) -> None:
    async with S3Stub({"key": b"x"}) as stub:
        with pytest.raises(Fatal, match=r"objects\.anon") as caught:
            async with Reading(client, stub, region="us-east-1") as objects:
                await objects.open(Location("bucket", "key"))
    assert caught.value.exit_code == EXIT_USAGE


def test_a_key_without_its_secret_is_a_usage_error(client: Any) -> None:
    with pytest.raises(Fatal, match="together") as caught:
        client(config.Objects(key="alone"))
    assert caught.value.exit_code == EXIT_USAGE


async def test_a_part_that_was_cut_is_asked_for_again(client: Any) -> None:
    async with S3Stub({"key": LARGE}) as stub, Reading(client, stub) as objects:
        stub.next.extend([Cut(), Refusal(503, "SlowDown")])
        part = await objects.part(Location("bucket", "key", etag="etag-1"), 5, 5_000_000)
        assert part.data == LARGE[5:5_000_000]
        assert [seen.headers["If-Match"] for seen in stub.seen] == ['"etag-1"'] * 3


async def test_a_part_that_never_comes_is_transient(client: Any) -> None:
    async with S3Stub({"key": LARGE}) as stub, Reading(client, stub) as objects:
        stub.next.extend([Cut()] * 4)
        with pytest.raises(Transient):
            await objects.part(Location("bucket", "key"), 0, 1000)


@pytest.mark.parametrize(
    ("asked", "read_as"),
    [
        ((0, 3), ""),
        ((5, 8), ""),
        ((-3, None), ""),
        ((-3, None), "bytes=0-2"),
        ((0, 3), "bytes=3-5"),
        ((5, 8), "bytes=3-5"),
    ],
)
async def test_a_store_that_misreads_ranges_gives_no_wrong_bytes(
    client: Any, asked: tuple[int, int | None], read_as: str
) -> None:
    async with S3Stub({"key": b"0123456789"}) as stub, Reading(client, stub) as objects:
        stub.reads_range = lambda _: read_as
        with pytest.raises(Transient):
            await objects.part(Location("bucket", "key"), *asked)


async def test_another_version_than_the_pinned_one_is_changed_also_if_the_store_sends_it(
    client: Any,
) -> None:
    """Some stores ignore `If-Match`."""
    pinned = Location("bucket", "key", etag="etag-0")
    async with S3Stub({"key": b"1234"}) as stub, Reading(client, stub) as objects:
        stub.ignores_pins = True
        for ask in (objects.open(pinned), objects.part(pinned, 0, 2)):
            with pytest.raises(Poison) as caught:
                await ask
            assert caught.value.code == "changed"
