"""No secret is in anything that a failing run prints, with `--debug` or without.

Real processes, against a server that throws back all it was sent, `Authorization` included.
"""

import asyncio
import logging
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import logs
from penstock.config import MASK, Config, Store, load, shown_url
from tests.support.waiting import DEADLINE_S
from tests.support.warm_start import PENSTOCK

SECRETS = {
    "KAFKA__SASL_PASSWORD": 'kafka-"password"',
    "OBJECTS__KEY": "access-key-of-ours",
    "OBJECTS__SECRET": "secret/key+of=ours",
    "MODEL__TOKEN": "token-of-the-model",
    "HTTP__TOKEN": "token-of-the-page",
}
# In addresses; the last is what signs a presigned one.
IN_URLS = ["password-in-url", "query-in-url", "signature-in-url"]
IN_HEADER = "Bearer of-the-receiver"
NEVER = [
    *SECRETS.values(),
    IN_HEADER,
    *IN_URLS,
    'kafka-\\"password\\"',
    b64encode(b"user:password-in-url").decode(),
]


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """`host:port` of a server that refuses and repeats everything; at `/rejects` the rows."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = await reader.read(4096)
        writer.write(
            b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
            % (400 if b"/rejects" in text else 401, len(text), text)
        )
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def said_by(*arguments: str, settings: dict[str, str]) -> tuple[int, str]:
    """Exit code and all output of a command; one that waits for a service gets a signal to stop."""
    variables = {f"PENSTOCK_{name}": value for name, value in (SECRETS | settings).items()}
    process = await asyncio.create_subprocess_exec(
        *(*PENSTOCK, *arguments),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    message = ""
    async with asyncio.timeout(DEADLINE_S):
        async for line in process.stdout:
            message += line.decode()
            if "waiting" in message and process.returncode is None:
                process.terminate()
        return await process.wait(), message


def check(words: str) -> None:
    assert [secret for secret in NEVER if secret in words] == [], words


def with_credentials(address: str) -> str:
    return f"http://user:{IN_URLS[0]}@{address}/predictions/m?x={IN_URLS[1]}&X-Amz-Signature={IN_URLS[2]}"


async def test_config_masks_secrets_and_what_addresses_carry() -> None:
    code, log = await said_by(
        "config",
        settings={
            "MODEL__URL": with_credentials("h:80"),
            "MODEL__TOKEN": "",  # beside a user in the address it is refused
            "OBJECTS__ENDPOINT_URL": "http://user:password-in-url@store",
            "TRACES__ENDPOINT": with_credentials("collector:4318"),
            "TRACES__HEADERS": f'{{"authorization": "{IN_HEADER}"}}',
        },
    )
    assert code == 0
    assert MASK in log
    assert "@store" in log
    assert "@collector" in log
    check(log)


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("by", ["token", "url", "both"])
async def test_a_model_that_refuses_the_credentials(
    echo: str, tmp_path: Path, debug: tuple[str, ...], form: str, by: str
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "k.csv").write_text("1,2\n")
    settings = {
        "OBJECTS__ENDPOINT_URL": tmp_path.as_uri(),
        "MODEL__URL": f"http://{echo}" if by == "token" else with_credentials(echo),
        "MODEL__TOKEN": "" if by == "url" else SECRETS["MODEL__TOKEN"],
        "LOG__LEVEL": "debug",
        "LOG__FORMAT": form,
    }
    code, log = await said_by("predict", "s3://b/k.csv", *debug, settings=settings)
    assert code == 2, log
    assert ("401" in log) == (by != "both")
    assert ("Traceback" in log) == bool(debug)
    check(log)


@pytest.mark.parametrize("by", ["token", "url"])
async def test_a_model_that_repeats_the_credentials_in_its_complaint_about_a_row(
    echo: str, tmp_path: Path, by: str
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "k.csv").write_text("1,2\n")
    settings = {
        "OBJECTS__ENDPOINT_URL": tmp_path.as_uri(),
        "MODEL__URL": f"http://{echo}" if by == "token" else f"http://user:{IN_URLS[0]}@{echo}",
        "MODEL__TOKEN": "" if by == "url" else SECRETS["MODEL__TOKEN"],
        "MODEL__NAME": "rejects",
    }
    code, log = await said_by("predict", "s3://b/k.csv", settings=settings)
    assert code == 1
    assert "model_rejected" in log
    assert f"{'Bearer' if by == 'token' else 'Basic'} {MASK}" in log
    check(log)


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
async def test_a_store_that_refuses_the_secret(echo: str, client: str) -> None:
    settings = {
        "OBJECTS__CLIENT": client,
        "OBJECTS__ENDPOINT_URL": f"http://{echo}",
        "OBJECTS__REGION": "us-east-1",
        "MODEL__URL": f"http://{echo}",
        "MODEL__NAME": "rejects",
    }
    code, log = await said_by("predict", "s3://b/k.csv", "--debug", settings=settings)
    assert code == 2
    assert '"code":"forbidden"' in log
    check(log)


async def test_brokers_that_do_not_take_the_password(echo: str) -> None:
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": echo,
        "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA__SASL_MECHANISM": "PLAIN",
        "KAFKA__SASL_USERNAME": "user",
        "LOG__LEVEL": "debug",
    }
    _, log = await said_by("run", "--debug", settings=settings)
    assert echo in log
    check(log)


@pytest.mark.parametrize(
    "text",
    [
        '[objects]\nprofile = ["secret/key+of=ours"]\n',
        '[objects]\nsecrets = "secret/key+of=ours"\n',
        '[http]\ntoken = "token-of-the-page\n',
        '[model]\nurl = "ftp://user:password-in-url@host"\n',
    ],
)
async def test_a_configuration_that_is_wrong(tmp_path: Path, text: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(text)
    code, log = await said_by(
        "predict",
        "s3://b/k.csv",
        "--debug",
        "--config",
        str(path),
        settings={"OBJECTS__SECRET": ""},
    )
    assert code == 2, log
    check(log)


def test_the_program_s_own_name_is_shown_even_where_it_is_a_key() -> None:
    logs.hide({"penstock"})
    assert logs.redacted("create it: penstock topics create").endswith("penstock topics create")


def test_the_net_catches_a_secret_however_it_is_written() -> None:
    environ = {f"PENSTOCK_{name}": value for name, value in SECRETS.items()}
    logs.hide(load(None, environ).secrets())
    try:
        record = logging.makeLogRecord({"msg": 'kafka-"password" and secret%2Fkey%2Bof%3Dours'})
        for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
            line = formatter.format(record)
            assert "password" not in line
            assert "secret" not in line
    finally:
        logs.hide(())


def test_the_net_catches_a_secret_with_a_quote_and_a_letter_beyond_ascii() -> None:
    logs.hide({'pä"ssword'})
    try:
        record = logging.makeLogRecord({"msg": 'refused: pä"ssword'})
        for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
            assert "ssword" not in formatter.format(record)
    finally:
        logs.hide(())


OPTIONS = {
    "host": "files.example",
    "port": 22,
    "username": "me",
    "use_ssl": True,
    "pin": 12345678,
    "client_kwargs": {
        "password": "nested-password",
        "timeout": 30,
        "headers": {"x-api-key": "key-in-header", "Authorization": "Bearer bearer-in-header"},
        "connection_string": "AccountName=acme;AccountKey=key-in-connection==;EndpointSuffix=x",
    },
    "dsn": "postgresql://me:password-in-dsn@db/x",
    "auth": ["me", "second-of-two"],
    "base_url": "https://me:password-in-base@files.example/x",
    "proxies": {"https": "http://me:password-in-proxy@proxy"},
}
OF_OPTIONS = [
    "12345678", "nested-password", "key-in-header", "bearer-in-header", "key-in-connection==",
    "password-in-dsn", "second-of-two", "password-in-base", "password-in-proxy",
]  # fmt: skip


def with_options() -> Config:
    return Config(stores={"x": Store(url="sftp://files", options=OPTIONS)})


def test_of_the_options_of_a_store_only_the_harmless_are_shown() -> None:
    shown = with_options().masked()["stores"]["x"]["options"]
    assert [secret for secret in OF_OPTIONS if secret in str(shown)] == []
    assert (shown["host"], shown["port"], shown["username"]) == ("files.example", 22, "me")
    assert shown["use_ssl"] is True
    assert shown["base_url"] == f"https://me:{MASK}@files.example/x"
    assert shown["client_kwargs"]["timeout"] == 30
    assert shown["client_kwargs"]["connection_string"] == MASK


def test_what_a_library_repeats_of_its_options_is_hidden_in_logs() -> None:
    logs.hide(with_options().secrets())
    try:
        for secret in OF_OPTIONS:
            assert secret not in logs.redacted(f"refused: {secret!r} is wrong")
    finally:
        logs.hide(())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:80/a", "http://host:80/a"),
        ("http://user:secret@host", f"http://user:{MASK}@host"),
        ("http://token@host", f"http://{MASK}@host"),
        ("http://host/a?X-Amz-Signature=ab", f"http://host/a?{MASK}"),
        ("http://[host", MASK),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, shown: str) -> None:
    assert shown_url(url) == shown
