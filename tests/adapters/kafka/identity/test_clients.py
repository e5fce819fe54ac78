"""What each client shows of who we are, by each mechanism. Its own library takes it: a mechanism or
an option that the library does not know is refused here, and not by a worker in production.

A new mechanism gets a line in `MECHANISMS`; a new client a test beside the three.
"""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from penstock import config
from penstock.adapters.confluent.member_options import ClientLogin
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.identity.identity import identity_of
from penstock.adapters.kafka.inside.authentication import AuthenticatedConnection
from penstock.scenes.faust_engine import credentials_of
from tests.support.secured import Authority

TOKEN = "header.eyJzdWIiOiAibWUiLCAiZXhwIjogNDEwMjQ0NDgwMH0.signature"  # of me, until 2100
PASSWORD = {"sasl_username": "me", "sasl_password": "a secret"}
MECHANISMS: dict[str, dict[str, Any]] = {
    "PLAIN": PASSWORD,
    "SCRAM-SHA-256": PASSWORD,
    "SCRAM-SHA-512": PASSWORD,
    "OAUTHBEARER": {},  # with a token in a file
}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
every_protocol = pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def kafka(mechanism: str, protocol: str, authority: Authority, tmp_path: Path) -> config.Kafka:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    oauth = config.OAuth(provider="file", token_file=str(token))
    return config.Kafka(
        bootstrap_servers="127.0.0.1:1",
        security_protocol=protocol,  # type: ignore[arg-type]
        sasl_mechanism=mechanism,  # type: ignore[arg-type]
        ssl_cafile=str(authority.cafile) if protocol == "SASL_SSL" else None,
        oauth=oauth if mechanism == "OAUTHBEARER" else None,
        **MECHANISMS[mechanism],
    )


def test_every_mechanism_of_the_configuration_is_tried_here() -> None:
    hint = get_type_hints(config.Kafka)["sasl_mechanism"]
    named = {each for choice in get_args(hint) for each in get_args(choice)}
    # Kerberos shows nothing without a realm; it has a broker of its own (test_kerberos.py).
    assert named - {"GSSAPI"} == MECHANISMS.keys()


@every_mechanism
@every_protocol
async def test_aiokafka(kafka: config.Kafka, mechanism: str, protocol: str) -> None:
    arguments = connection(kafka)
    await AIOKafkaConsumer(**arguments).stop()  # it raises what it does not know
    assert arguments["security_protocol"] == protocol
    assert arguments["sasl_mechanism"] == mechanism
    assert arguments["sasl_oauth_token_provider"] is identity_of(kafka)
    assert (arguments["ssl_context"] is not None) == (protocol == "SASL_SSL")
    await shows(kafka, mechanism, arguments["sasl_oauth_token_provider"])


async def shows(kafka: config.Kafka, mechanism: str, provider: AbstractTokenProvider) -> None:
    """What a connection of aiokafka, or of Faust, shows to the broker."""
    one = AuthenticatedConnection("127.0.0.1", 1, sasl_oauth_token_provider=provider)
    one._sasl_mechanism = mechanism
    identity = identity_of(kafka)
    token = await identity.present_token() if mechanism == "OAUTHBEARER" else None
    message, _ = await one._authenticator(identity, token).step(None)
    expected = {
        "PLAIN": b"\0me\0a secret",
        "OAUTHBEARER": f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode(),
    }.get(mechanism, b"n,,n=me,r=")
    assert message.removeprefix(b"me").startswith(expected)


@every_mechanism
@every_protocol
def test_confluent(kafka: config.Kafka, mechanism: str, protocol: str) -> None:
    options = ClientLogin(kafka).options()
    # librdkafka raises what it does not know.
    Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", **options}).close()
    assert options["security.protocol"] == protocol
    assert options["sasl.mechanism"] == mechanism
    if mechanism == "OAUTHBEARER":
        token, ends_s, principal, _ = options["oauth_cb"]("")
        assert (token, ends_s, principal) == (TOKEN, 4_102_444_800.0, "me")
    else:
        assert (options["sasl.username"], options["sasl.password"]) == ("me", "a secret")


@every_mechanism
@every_protocol
async def test_faust(kafka: config.Kafka, mechanism: str, protocol: str) -> None:
    arguments = credentials_to_aiokafka_auth(credentials_of(kafka), None)
    await AIOKafkaConsumer(**arguments).stop()
    assert arguments["security_protocol"] == protocol
    await shows(kafka, mechanism, arguments["sasl_oauth_token_provider"])
