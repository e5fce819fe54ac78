"""What is renewed on disk, or was refused, as librdkafka learns of it."""

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock import config
from penstock.adapters.confluent import member_options
from penstock.adapters.confluent.member_options import ClientLogin
from penstock.adapters.kafka.identity.identity import identity_of
from tests.adapters.confluent.member import member
from tests.support.secured import Authority

SSL, TRANSPORT = KafkaError(KafkaError._SSL), KafkaError(KafkaError._TRANSPORT)
REFUSED = KafkaError(
    KafkaError._AUTHENTICATION, "b:1: SASL authentication error: no such user (after 5ms)"
)
NOT_REFUSED = [
    KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: away"),
    KafkaError(
        KafkaError._AUTHENTICATION,
        "SASL OAUTHBEARER mechanism handshake failed: Local: Broker transport failure",
    ),
]


async def test_a_password_that_is_written_anew_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(member_options, "REREAD_S", 0.0)
    file = tmp_path / "password"
    file.write_text("old\n")
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    names = {"sasl_username": "me", "sasl_password_file": str(file)}
    async with member(monkeypatch, **sasl, **names) as one:
        await one.polls(lambda: True)
        file.unlink()
        await one.polls(lambda: True)
        file.write_text("new\n")
        await one.polls(lambda: one.consumer.said[1:] == ["log in as me by new"])
        await one.polls(lambda: True)
        assert one.consumer.said[1:] == ["log in as me by new"]


async def test_a_certificate_that_is_written_anew_gets_a_new_client_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.sign("ours"))
    files: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key}
    async with member(monkeypatch, security_protocol="SSL", **files) as one:
        one.source._on_error(SSL)
        await one.polls(lambda: True)
        assert "close" not in one.consumer.said
        os.utime(certificate, (1, 1))
        one.source._on_error(TRANSPORT)
        await one.polls(lambda: True)
        assert "close" not in one.consumer.said
        one.source._on_error(SSL)
        await one.polls(lambda: one.consumer.said[-2:] == ["close", "subscribe ['refs']"])
        one.source._on_error(SSL)
        await one.polls(lambda: True)
        assert one.consumer.said.count("close") == 1


def test_a_token_that_a_broker_refuses_is_not_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    kafka = config.Kafka(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        oauth=config.OAuth(provider="file", token_file=str(file)),
    )
    login = ClientLogin(kafka)
    show = login.options()["oauth_cb"]
    assert show("")[0] == "first"
    for error in NOT_REFUSED:
        login.note(error)
    assert not login.is_refused
    login.note(REFUSED)
    assert login.is_refused
    file.write_text("second")
    assert login.options()["oauth_cb"]("")[0] == "second"
    assert not login.is_refused


@pytest.mark.parametrize("error", [REFUSED, KafkaError(KafkaError.UNRELEASED_INSTANCE_ID)])
async def test_a_new_client_is_made_when_there_is_a_token_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: KafkaError
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    by_token: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth": config.OAuth(provider="file", token_file=str(file)),
        "session_ms": 10,
    }
    async with member(monkeypatch, **by_token) as one:
        identity = identity_of(config.Kafka(**by_token))
        first = identity.current_token()
        file.unlink()
        one.source._on_error(error)
        identity.note_refusal(first)
        await one.polls(lambda: identity.provider_away)
        assert "close" not in one.consumer.said
        file.write_text("second")
        await one.polls(lambda: one.consumer.said[-2:] == ["close", "subscribe ['refs']"])


async def test_a_password_that_is_refused_is_told_to_who_minds_it() -> None:
    sasl: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    kafka = config.Kafka(**sasl, sasl_username="me", sasl_password="refused")
    login, told = ClientLogin(kafka), identity_of(kafka).refused()
    login.options()
    told.send(None)
    login.note(REFUSED)
    # The same client may be taken when the password was mended on the broker.
    assert not login.is_refused
    told.close()
