"""The tokens of each provider: as its own tools make them, and what a provider refuses."""

import asyncio
import base64
import datetime
import json
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aws_msk_iam_sasl_signer
import pytest
from aiohttp import web
from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import generate_auth_token
from botocore.credentials import Credentials

from penstock import config
from penstock.adapters.kafka.identity.providers import (
    LONGEST_S,
    UNTOLD_S,
    fetcher,
    google_token,
    msk_token,
)
from penstock.adapters.kafka.identity.tokens import Token
from penstock.errors import EXIT_USAGE, Fatal, PenstockError, Transient, Unreachable
from realstack.token_server import CLIENT, SECRET, Signer, TokenServer, token_server

MSK_HOST = "b-1.streams.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
AGENT = f"aws-msk-iam-sasl-signer-python/{aws_msk_iam_sasl_signer.__version__}"


def kafka(servers: str = "localhost:9092", **oauth: Any) -> config.Kafka:
    return config.Kafka(
        bootstrap_servers=servers,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth=config.OAuth(**oauth),
    )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TokenServer]:
    async with token_server(Signer(tmp_path)) as running:
        yield running


def by_secret(server: TokenServer, **changes: Any) -> config.Kafka:
    oauth = {"token_url": server.url, "client_id": CLIENT, "client_secret": SECRET}
    return kafka(provider="oidc", **oauth | changes)


@pytest.mark.parametrize("session", [None, "a-session-token/with+signs="])
def test_a_token_for_msk_is_that_of_aws_s_own_signer(
    monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now)
    key, secret = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    if session is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    theirs, _ = generate_auth_token("eu-central-1")
    assert msk_token("eu-central-1", Credentials(key, secret, session), agent=AGENT) == theirs


def test_the_region_of_msk_is_in_the_names_of_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    token = fetcher(kafka(MSK_HOST, provider="aws-msk-iam"))()
    address = base64.urlsafe_b64decode(token.text + "=" * (-len(token.text) % 4)).decode()
    assert address.startswith("https://kafka.eu-central-1.amazonaws.com/?")
    assert token.ends_s - token.begun_s == pytest.approx(900)
    with pytest.raises(Fatal, match=r"kafka\.oauth\.region"):
        fetcher(kafka("broker:9098", provider="aws-msk-iam"))


def test_a_token_for_msk_ends_with_the_credentials_that_signed_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program of the profile gives credentials that end in 5 minutes."""
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
    given = {
        "Version": 1,
        "AccessKeyId": "key",
        "SecretAccessKey": "secret",
        "SessionToken": "session",
        "Expiration": ends.isoformat(),
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    profile = tmp_path / "config"
    profile.write_text(f"[default]\ncredential_process = cat {tmp_path}/given.json\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    token = fetcher(kafka(MSK_HOST, provider="aws-msk-iam"))()
    assert token.ends_s == pytest.approx(ends.timestamp(), abs=1)


async def test_a_role_keeps_its_session_name_when_its_credentials_are_renewed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker refuses another principal when a connection authenticates itself again."""
    asked: list[dict[str, str]] = []

    async def assume(request: web.Request) -> web.Response:
        asked.append({key: str(value) for key, value in (await request.post()).items()})
        # So near to their end botocore asks for new ones each time.
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
        key = f"<AccessKeyId>key{len(asked)}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        key += f"<SessionToken>t</SessionToken><Expiration>{ends:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
        text = f"<AssumeRoleResult><Credentials>{key}</Credentials></AssumeRoleResult>"
        text = f"<AssumeRoleResponse>{text}</AssumeRoleResponse>"
        return web.Response(text=text, content_type="text/xml")

    app = web.Application()
    app.router.add_post("/", assume)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    profile = tmp_path / "config"
    role = "role_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = own\n"
    own = "aws_access_key_id = key\naws_secret_access_key = secret\n"
    profile.write_text(f"[default]\nregion = eu-central-1\n{role}[profile own]\n{own}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{runner.addresses[0][1]}")
    fetch = fetcher(kafka(MSK_HOST, provider="aws-msk-iam"))
    tokens = [await asyncio.to_thread(fetch) for _ in range(3)]
    await runner.cleanup()
    assert len(asked) >= 3
    assert len({form["RoleSessionName"] for form in asked}) == 1
    assert len({token.text for token in tokens}) == 3
    assert all(token.ends_s - token.begun_s < 310 for token in tokens)


def test_a_profile_that_is_missing_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(Fatal, match="no-such-profile") as caught:
        fetcher(kafka(MSK_HOST, provider="aws-msk-iam"))()
    assert caught.value.exit_code == EXIT_USAGE


def test_google_s_token_is_in_its_own_form() -> None:
    head, claims, access = google_token("ya29.access", "me@project", 100.0, 3_700.5).split(".")
    assert json.loads(_decoded(head)) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(_decoded(claims)) == {
        "exp": 3_700, "iss": "Google", "iat": 100, "sub": "me@project"
    }  # fmt: skip
    assert _decoded(access) == b"ya29.access"


def _decoded(part: str) -> bytes:
    assert "=" not in part
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.fixture
async def metadata(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[web.Request]]:
    """The metadata servers of Google and of Azure's containers."""
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        headers = {"Metadata-Flavor": "Google"}
        path = request.path
        if path.startswith("/azure"):
            ends_s = int(time.time()) + 3_600
            return web.json_response(
                {"access_token": "azure-token", "expires_on": str(ends_s), "resource": "r"}
            )
        if path.endswith("/token"):
            token = {"access_token": "google-token", "expires_in": 3_600, "token_type": "Bearer"}
            return web.json_response(token, headers=headers)
        if path.endswith("/service-accounts/default/"):
            return web.json_response({"email": "me@project", "scopes": []}, headers=headers)
        return web.Response(text="project", headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host = runner.addresses[0][1]
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{host}")
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{host}")
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{host}/azure")
    monkeypatch.setenv("IDENTITY_HEADER", "header")
    yield asked
    await runner.cleanup()


async def test_google_s_metadata_server(metadata: list[web.Request]) -> None:
    fetch = await asyncio.to_thread(fetcher, kafka(provider="gcp"))
    token = await asyncio.to_thread(fetch)
    assert _decoded(token.text.split(".")[2]) == b"google-token"
    assert token.principal == "me@project"
    assert token.ends_s == pytest.approx(time.time() + 3_600, abs=60)


async def test_azure_s_managed_identity(metadata: list[web.Request]) -> None:
    settings = kafka("hub.servicebus.windows.net:9093", provider="azure")
    token = await asyncio.to_thread(await asyncio.to_thread(fetcher, settings))
    assert token.text == "azure-token"
    assert token.ends_s == pytest.approx(time.time() + 3_600, abs=60)
    assert metadata[-1].query["resource"] == "https://hub.servicebus.windows.net"


async def test_a_client_with_a_secret(server: TokenServer) -> None:
    settings = by_secret(server, scope="kafka/.default", audience="brokers")
    token = await asyncio.to_thread(fetcher(settings))
    assert token.ends_s - token.begun_s == server.life_s
    assert token.principal == "penstock"
    assert server.forms[-1] == {
        "grant_type": "client_credentials", "scope": "kafka/.default", "audience": "brokers"
    }  # fmt: skip


async def test_a_token_of_a_slow_server_lasts_from_its_answer(server: TokenServer) -> None:
    server.answers_after_s, server.life_s = 0.5, 10.0
    asked_s = time.time()
    token = await asyncio.to_thread(fetcher(by_secret(server)))
    assert token.ends_s >= asked_s + 10.5
    # So the next one is there before this one ends.
    assert token.wants_renewal(token.ends_s - 2.0)
    assert token._replace(took_s=9.0).wants_renewal(token.begun_s)


@pytest.mark.parametrize("ahead_s", [-60, 60])
async def test_a_life_that_only_the_token_tells_counts_by_the_server_s_clock(
    server: TokenServer, ahead_s: int
) -> None:
    server.ahead_s, server.tells_life = ahead_s, False
    token = await asyncio.to_thread(fetcher(by_secret(server)))
    assert token.ends_s == pytest.approx(time.time() + server.life_s, abs=2.0)


async def test_a_client_with_a_private_key(server: TokenServer) -> None:
    settings = by_secret(server, client_secret=None, client_key_file=str(server.signer.private))
    token = await asyncio.to_thread(fetcher(settings))
    assert token.principal == "penstock"


async def test_an_answer_that_comes_in_pieces(server: TokenServer) -> None:
    server.mood = "in pieces"
    token = await asyncio.to_thread(fetcher(by_secret(server)))
    assert token.principal == "penstock"


async def test_an_answer_that_is_no_token_is_not_shown(server: TokenServer) -> None:
    server.mood = "bare"
    with pytest.raises(Transient, match="no JSON object") as caught:
        await asyncio.to_thread(fetcher(by_secret(server)))
    assert "eyJ" not in str(caught.value)


async def test_a_wrong_secret_is_refused_with_the_server_s_words(server: TokenServer) -> None:
    with pytest.raises(Fatal, match="no such client") as caught:
        await asyncio.to_thread(fetcher(by_secret(server, client_secret="x")))
    assert caught.value.exit_code == EXIT_USAGE


async def test_a_server_that_is_out_of_order_may_be_asked_again(server: TokenServer) -> None:
    server.mood = "ill"
    with pytest.raises(Transient, match="500"):
        await asyncio.to_thread(fetcher(by_secret(server)))
    with pytest.raises(Transient, match="does not answer"):
        await asyncio.to_thread(fetcher(by_secret(server, token_url="http://127.0.0.1:9/token")))


@asynccontextmanager
async def saying(answer: str | bytes, seen: list[bytes] | None = None) -> AsyncIterator[str]:
    """The URL of a server that answers so, whatever it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(asked)
        writer.write(answer.encode() if isinstance(answer, str) else answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/token"


def http(document: object, status: str = "200 OK", header: str = "X: y") -> str:
    body = json.dumps(document)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{header}\r\n\r\n{body}"


async def told_by(answer: str | bytes, **oauth: Any) -> Token:
    async with saying(answer) as url:
        settings = {"client_id": CLIENT, "client_secret": SECRET, "token_url": url}
        return await asyncio.to_thread(fetcher(kafka(provider="oidc", **settings | oauth)))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"\0\1\2 no HTTP\r\n\r\n", Unreachable, "does not answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, Unreachable, "does not answer"),
        (http("eyJ", header="Content-Encoding: gzip"), Unreachable, "does not answer"),
        (http("", "302 Found", "Location: https://other/"), Fatal, "is moved to https://other/"),
        (http({"error": "invalid_client"}), Fatal, "no access_token.*invalid_client"),
    ],
)
async def test_an_answer_of_any_kind_is_told_without_our_secret(
    answer: str | bytes, kind: type[PenstockError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        await told_by(answer)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode() not in shown


@pytest.mark.parametrize(
    ("told", "life_s"),
    [("60", 60.0), (None, UNTOLD_S), ("soon", UNTOLD_S), ("1e400", UNTOLD_S), (1e308, LONGEST_S)],
)
async def test_a_life_of_any_kind_has_an_end(told: object, life_s: float) -> None:
    token = await told_by(http({"access_token": "t", "expires_in": told}, "201 Created"))
    assert token.ends_s - token.begun_s == pytest.approx(life_s)


async def test_a_login_of_netrc_is_not_shown(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await asyncio.to_thread(fetcher(by_secret(server)))).principal == "penstock"


async def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    async with saying(http({"access_token": "t"}), seen) as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//me:word@"))
        monkeypatch.setenv("no_proxy", "localhost")
        settings = {"client_id": CLIENT, "client_secret": SECRET, "token_url": "http://far/token"}
        token = await asyncio.to_thread(fetcher(kafka(provider="oidc", **settings)))
    assert token.text == "t"
    assert seen[0].startswith(b"POST http://far/token ")
    assert b"Proxy-Authorization: Basic" in seen[0]


@asynccontextmanager
async def refusing(status: str) -> AsyncIterator[str]:
    """A proxy that answers so before it was asked anything: `host:port`."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as running:
        yield f"127.0.0.1:{running.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("status", ["407 Who", "403 No", "502 Far"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_named_without_its_login(
    monkeypatch: pytest.MonkeyPatch, status: str, scheme: str
) -> None:
    """`https`: the proxy speaks no TLS."""
    async with refusing(status) as proxy:
        monkeypatch.setenv("https_proxy", f"{scheme}://me:s%C3%A9same@{proxy}/path")
        with pytest.raises(Unreachable, match=f"by the proxy {scheme}://{proxy}\\)") as caught:
            await asyncio.to_thread(fetcher(far("https://far/token")))
    shown = "".join(traceback.format_exception(caught.value))
    assert not [one for one in ("me:s", "s%C3%A9same", "sésame") if one in shown]


async def test_the_login_of_a_proxy_opens_the_way_to_a_server_with_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []
    async with saying("HTTP/1.1 502 Far\r\n\r\n", seen) as proxy:
        monkeypatch.setenv("https_proxy", proxy.replace("//", "//me:s%C3%A9same@"))
        with pytest.raises(Unreachable):
            await asyncio.to_thread(fetcher(far("https://far/token")))
    login = base64.b64encode("me:sésame".encode())
    assert seen[0].startswith(b"CONNECT far:443 ")
    assert b"Proxy-Authorization: Basic " + login + b"\r\n" in seen[0]


@pytest.mark.parametrize(
    "proxy", ["me:sesame@host:80", "socks5://me:sesame@host:80", "http://me:sesame@host:x"]
)
async def test_a_proxy_that_is_no_address_of_http_is_refused_without_its_login(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(Fatal, match="https_proxy") as caught:
        await asyncio.to_thread(fetcher(far("https://far/token")))
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("but", ["::1", "[::1]", "[::1]:9"])
async def test_an_ipv6_address_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, but: str
) -> None:
    async with saying(http({"access_token": "the proxy's"})) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", but)
        with pytest.raises(Unreachable):
            await asyncio.to_thread(fetcher(far("http://[::1]:9/token")))


def far(url: str) -> config.Kafka:
    return kafka(provider="oidc", token_url=url, client_id=CLIENT, client_secret=SECRET)


@pytest.mark.parametrize("status", ["200 OK", "401 No", "500 Ill"])
@pytest.mark.parametrize("slash", ["/", "\\/"])
async def test_a_server_that_quotes_our_secret_at_length_is_told_short_and_masked(
    status: str, slash: str
) -> None:
    secret = 'hush/"hush"'
    login = base64.b64encode(f"{CLIENT}:{secret}".encode()).decode()
    said = {"error": "no", "error_description": f"{secret} {login} " + "x" * 500_000}
    body = json.dumps(said).replace("/", slash)
    answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with pytest.raises(PenstockError, match=r"\*{8} \*{8} xxx") as caught:
        await told_by(answer, client_secret=secret)
    assert len(str(caught.value)) < 600
    assert "hush" not in str(caught.value)
    assert login not in str(caught.value)


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
@pytest.mark.parametrize("error", ["temporarily_unavailable", "server_error"])
async def test_an_error_that_passes_is_no_refusal(status: str, error: str) -> None:
    body = json.dumps({"error": error})
    with pytest.raises(Transient, match=error):
        await told_by(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}")


async def test_a_proxy_that_wants_a_login_is_not_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with refusing("407 Who") as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        with pytest.raises(Fatal, match=r"the proxy refuses us.*correct its login in http_proxy"):
            await asyncio.to_thread(fetcher(far("http://far/token")))


@pytest.mark.parametrize("key", ["token_file", "client_key_file"])
def test_a_secret_file_that_is_not_utf_8_is_told_so(tmp_path: Path, key: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"hush-hush \xe9")
    oauth = {"provider": "oidc", "token_url": "http://127.0.0.1:9/", "client_id": CLIENT}
    if key == "token_file":
        oauth = {"provider": "file"}
    with pytest.raises(PenstockError, match=f"{key}.*is not UTF-8") as caught:
        fetcher(kafka(**oauth, **{key: str(file)}))()
    assert "xe9" not in "".join(traceback.format_exception(caught.value))


def test_a_file_is_read_anew_for_each_token(tmp_path: Path) -> None:
    signer, file = Signer(tmp_path), tmp_path / "token"
    fetch = fetcher(kafka(provider="file", token_file=str(file)))
    with pytest.raises(Transient, match="token_file"):
        fetch()
    for subject in ("one", "two"):
        file.write_text(signer.token(sub=subject) + "\n")
        token = fetch()
        assert token.principal == subject
        assert token.wants_renewal(time.time())
    file.write_text(signer.token(life_s=-5))
    with pytest.raises(Transient, match="has ended"):
        fetch()


@pytest.mark.parametrize(
    ("oauth", "key"),
    [
        ({"provider": "oidc", "client_id": "c", "client_secret": "s"}, "token_url"),
        ({"provider": "oidc", "token_url": "http://x/", "client_id": "c"}, "client_secret"),
        ({"provider": "oidc", "token_url": "http://a:b@x/", "client_id": "c"}, "token_url"),
        ({"provider": "file"}, "token_file"),
    ],
)
def test_a_key_that_is_missing_is_named(oauth: dict[str, str], key: str) -> None:
    with pytest.raises(Fatal, match=rf"kafka\.oauth\.{key}"):
        fetcher(kafka(**oauth))
