"""What may change on disk is read for each new connection; what is missing is named."""

import asyncio
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.adapters.kafka.identity.identity import identity_of, of_kerberos
from penstock.errors import EXIT_USAGE, Fatal, Transient
from tests.support.secured import Authority
from tests.support.waiting import DEADLINE_S


def by_password(**keys: Any) -> config.Kafka:
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    return config.Kafka(**sasl | {"sasl_username": "me"} | keys)


def test_all_clients_of_a_process_have_one_identity() -> None:
    assert identity_of(by_password(sasl_password="a")) is identity_of(
        by_password(sasl_password="a", input_topic="another")
    )
    assert identity_of(by_password(sasl_password="b")).password == "b"


def test_a_password_in_a_file_may_change(tmp_path: Path) -> None:
    file = tmp_path / "password"
    identity = identity_of(by_password(sasl_password_file=str(file)))
    for password in ("old one", "new one"):
        file.write_text(f"{password}\n")
        assert identity.password == password
    file.write_bytes(b"old \xe9")
    with pytest.raises(Fatal, match=r"sasl_password_file.*is not UTF-8"):
        _ = identity.password
    file.unlink()
    with pytest.raises(Fatal, match="sasl_password_file"):
        _ = identity.password


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "sasl_password_file"),
        ({"sasl_username": None, "sasl_password": "x"}, "sasl_username"),
        ({"sasl_password": "x", "sasl_password_file": "y"}, "both set"),
        ({"sasl_mechanism": "OAUTHBEARER"}, r"\[kafka\.oauth\]"),
    ],
)
def test_what_is_missing_is_named(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(Fatal, match=words) as caught:
        identity_of(by_password(**keys))
    assert caught.value.exit_code == EXIT_USAGE


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(Fatal, match="kerberos"):
        identity_of(by_password(sasl_mechanism="GSSAPI"))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2529639068, Transient),  # Cannot contact any KDC for realm 'TESTS'
        (2529638918, Fatal),  # Client 'other@TESTS' not found in Kerberos database
        (2529638930, Fatal),  # Client's credentials have been revoked
        (2529639053, Fatal),  # No Kerberos credentials available (default cache: MEMORY:x)
    ],
)
def test_a_realm_that_is_away_is_waited_for_and_one_that_refuses_is_not(
    number: int, kind: type[Exception]
) -> None:
    class GSSError(Exception):
        min_code = number

    assert isinstance(of_kerberos(GSSError("its words")), kind)
    assert "its words" in str(of_kerberos(GSSError("its words")))


async def test_a_refusal_wakes_everybody_who_minds_the_login() -> None:
    identity = identity_of(by_password(sasl_password="wakes"))
    minding = [asyncio.create_task(identity.refused()) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.to_thread(identity.note_refusal, None)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*minding)


async def test_a_certificate_that_is_written_anew_is_shown_to_the_next_broker(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("old")
    kafka = config.Kafka(
        security_protocol="SSL",
        ssl_cafile=str(authority.cafile),
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
    )
    seen: list[str] = []

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert")
        seen.append(dict(pair for part in shown["subject"] for pair in part)["commonName"])
        writer.close()

    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.cafile))
    ours.load_cert_chain(*authority.sign("broker"))
    ours.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=ours)
    port = server.sockets[0].getsockname()[1]
    identity = identity_of(kafka)

    async def connect() -> None:
        identity.renew_certificates()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=identity.tls)
        assert await reader.read() == b""
        writer.close()

    async with server:
        await connect()
        for new, old in zip(authority.sign("new"), (certificate, key), strict=True):
            new.replace(old)
            os.utime(old, (1, 1))
        await connect()
        # A key that does not fit its certificate yet: the pair before serves on.
        authority.sign("another")[1].replace(key)
        await connect()
    assert seen == ["old", "new", "new"]
