"""Asks a provider for a token: an OpenID Connect server, AWS, Azure, Google, or a file.

Rule: what is fetched here may block, because `BrokerTokens` calls it in a thread. A provider that
does not answer, or answers with 429 or 5xx, is `Transient`. One that knows us and refuses is
`Fatal`, with its own words.
"""

import asyncio
import base64
import importlib
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from yarl import URL

from penstock import config
from penstock.adapters.http.certificates import trusting, untrusted
from penstock.adapters.kafka.identity.tokens import Token
from penstock.errors import PenstockError, Transient, Unreachable, usage
from penstock.packages import missing_extra

# Ten seconds are librdkafka's own limit for a token.
ANSWER_S: Final = 10.0
MOST_BYTES: Final = 1 << 20
# So much of a provider's words is shown.
MOST_WORDS: Final = 300
# A token whose life nobody tells is asked for again after this time.
UNTOLD_S: Final = 300.0
# librdkafka counts milliseconds in 64 bits, which a server's number may pass.
LONGEST_S: Final = 1e11
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_EVENT_HUBS_HOST: Final = re.compile(r"^[^,:]+")
# What AWS says while it has too much to do.
_BUSY: Final = {
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "IDPCommunicationError",
}
# The signature of a token for MSK holds for this time, which AWS's own signers use.
MSK_S: Final = 900
MSK_AGENT: Final = "penstock"


def fetcher(kafka: config.Kafka) -> Callable[[], Token]:
    """A function that fetches a token. Raises `Fatal` if a key or an extra is missing."""
    oauth = provider_of(kafka)
    make = {
        "oidc": _oidc,
        "aws-msk-iam": _msk,
        "azure": _azure,
        "gcp": _gcp,
        "file": _file,
    }[oauth.provider]
    return make(kafka, oauth)


def provider_of(kafka: config.Kafka) -> config.OAuth:
    """Raises `Fatal` if none is configured."""
    if kafka.oauth is None:
        raise usage(
            'kafka.sasl_mechanism = "OAUTHBEARER" needs a table [kafka.oauth] with the provider of '
            "the tokens"
        )
    return kafka.oauth


def _needed(oauth: config.OAuth, key: str) -> str:
    value: str | None = getattr(oauth, key)
    if value is None:
        raise usage(f'kafka.oauth.{key} is needed for provider = "{oauth.provider}"')
    return value


def _oidc(kafka: config.Kafka, oauth: config.OAuth) -> Callable[[], Token]:
    url, client_id = _needed(oauth, "token_url"), _needed(oauth, "client_id")
    if "@" in urlsplit(url).netloc:
        raise usage("kafka.oauth.token_url has a login; set client_id and client_secret instead")
    form = {"grant_type": "client_credentials"}
    form |= {key: value for key in ("scope", "audience") if (value := getattr(oauth, key))}
    sign: Callable[[], Mapping[str, str]] = dict
    headers, secrets = {}, set[str]()
    if oauth.client_key_file is not None:
        sign = _signing(oauth.client_key_file, client_id, url)
    else:
        secret = _needed(oauth, "client_secret")
        login = _encoded(f"{client_id}:{secret}")
        headers["Authorization"], secrets = f"Basic {login}", {secret, login}
    tls = trusting(oauth.ssl_cafile, "kafka.oauth.ssl_cafile")

    def fetch() -> Token:
        asked_s = time.time()
        answer, server_s = asyncio.run(_posted(url, {**form, **sign()}, headers, tls, secrets))
        # A slow server makes the token when it answers. Whether the clocks agree does not matter,
        # as only the life counts.
        begun_s = time.time()
        text = answer.get("access_token")
        if not isinstance(text, str) or not text:
            reasons = [str(answer[key]) for key in ("error", "error_description") if key in answer]
            words = _shown(": ".join(reasons), secrets)
            if _passes(answer):
                raise Transient(f"the token server {url} answers: {words}")
            raise usage(f"kafka.oauth.token_url {url}: its answer has no access_token ({words})")
        life_s = _seconds(answer.get("expires_in"))
        if life_s is None and server_s is not None:
            ends_s = _seconds(_claims(text).get("exp"))
            life_s = None if ends_s is None else ends_s - server_s
        return _token(text, begun_s, life_s)._replace(took_s=begun_s - asked_s)

    return fetch


def _signing(key_file: str, client_id: str, url: str) -> Callable[[], Mapping[str, str]]:
    """RFC 7523: the client shows who it is by a token that it signs itself."""
    jwt = _library("jwt", "kafka.oauth.client_key_file", "jwt")

    def sign() -> Mapping[str, str]:
        try:
            key = config.secret_text(key_file)
        except (OSError, ValueError) as error:
            raise usage(f"kafka.oauth.client_key_file {key_file}: {error}") from error
        now_s = int(time.time())
        claims = {"iss": client_id, "sub": client_id, "aud": url, "jti": str(uuid.uuid4())}
        claims |= {"iat": now_s, "nbf": now_s, "exp": now_s + 60}  # type: ignore[dict-item]
        for algorithm in ("RS256", "ES256"):
            try:
                signed = jwt.encode(claims, key, algorithm=algorithm)
                break
            except (ValueError, TypeError, jwt.InvalidKeyError):
                continue
        else:
            raise usage(f"kafka.oauth.client_key_file {key_file} is no private key of RSA or P-256")
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return {
            "client_id": client_id, "client_assertion_type": kind, "client_assertion": signed
        }  # fmt: skip

    return sign


def _encoded(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def _shown(words: str, secrets: Iterable[str]) -> str:
    """What a server says, without our secrets, which it may quote, in JSON too. Some escape its
    slashes.
    """
    in_json = {orjson.dumps(secret).decode()[1:-1] for secret in secrets}
    with_slashes = {text.replace("/", "\\/") for text in in_json}
    return config.without({*secrets, *in_json, *with_slashes}, words)[:MOST_WORDS].strip()


def _proxy_of(url: str) -> tuple[URL | None, str | None, set[str]]:
    """The environment's proxy for the URL, its login as a header has it, and what may not be shown
    of it. aiohttp would take a login from .netrc, too, and would show that of the proxy's address.
    """
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return None, None, set()
    if not (address := getproxies().get(parts.scheme)):
        return None, None, set()
    try:
        proxy = URL(address)
    except ValueError:
        proxy = URL()
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise usage(
            f"{parts.scheme}_proxy in the environment is no address; write http://host:port"
        )
    if proxy.user is None and proxy.password is None:
        return proxy.origin(), None, set()
    login = _encoded(f"{proxy.user or ''}:{proxy.password or ''}")
    return proxy.origin(), f"Basic {login}", config.url_secrets(address) | {login}


async def _posted(
    url: str,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    tls: Any,
    secrets: Iterable[str] = (),
) -> tuple[dict[str, Any], float | None]:
    """The answer, and when it was made by the server's clock, if the server tells it."""
    limit = aiohttp.ClientTimeout(total=ANSWER_S)
    proxy, login, of_proxy = _proxy_of(url)
    secrets = {*secrets, *of_proxy, form.get("client_assertion", "")}
    server = f"the token server {url}" + (f" (by the proxy {proxy})" if proxy else "")
    to_proxy = {} if login is None else {"Proxy-Authorization": login}
    if urlsplit(url).scheme == "http":  # there is no CONNECT before it
        headers = {**headers, **to_proxy}
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(
                url,
                data=form,
                headers=headers,
                ssl=tls,
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=to_proxy,
            ) as response,
        ):
            status, sent, body = response.status, response.headers, bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    raise Transient(f"{server} answers without end")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if (fatal := untrusted(repr(error), "kafka.oauth.ssl_cafile")) is not None:
            raise fatal from error
        # The repr of some errors shows the request's headers, and with them our secret.
        why = str(getattr(error, "os_error", error)) or repr(error)
        if isinstance(error, TimeoutError):
            why = f"no answer within {ANSWER_S:g} s"
        raise Unreachable(f"{server} does not answer: {_shown(why, secrets)}") from None
    try:
        answer = orjson.loads(body)
    except ValueError:
        answer = None
    if not 200 <= status < 300:
        words = _shown(body.decode(errors="replace"), secrets)
        target = _shown(sent.get("Location", ""), secrets)
        raise _refusal(status, answer, words, target, server, url)
    if not isinstance(answer, dict):  # it may be a token, so it is not shown
        raise Transient(f"{server} answers no JSON object ({len(body):,} bytes)")
    return answer, _made_s(sent.get("Date"))


def _refusal(
    status: int, answer: object, words: str, target: str, server: str, url: str
) -> PenstockError:
    """What an answer without a token means. `words`, `target`: its text and the address that it
    names, as people may see them.
    """
    if status in (408, 425, 429) or status >= 500 or _passes(answer):
        return Transient(f"{server} answers {status}: {words}")
    if status == 407:
        variable = f"{urlsplit(url).scheme}_proxy"
        return usage(f"{server}: the proxy refuses us: {words}; correct its login in {variable}")
    if target:
        return usage(f"kafka.oauth.token_url {url}: it is moved to {target}")
    return usage(
        f"{server} refuses us: {status} {words}\n"
        "Correct kafka.oauth.client_id, client_secret or client_key_file, scope and audience."
    )


def _passes(answer: object) -> bool:
    """True for an error that is no refusal, whatever its status is (RFC 6749, 4.1.2.1)."""
    passing = ("temporarily_unavailable", "server_error")
    return isinstance(answer, dict) and answer.get("error") in passing


def _made_s(date: str | None) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(value: object) -> float | None:
    """Some servers write a number as a text."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _token(text: str, begun_s: float, life_s: float | None) -> Token:
    claims = _claims(text)
    ends_s = begun_s + life_s if life_s is not None else _seconds(claims.get("exp"))
    if ends_s is None or not math.isfinite(ends_s):
        ends_s = begun_s + UNTOLD_S
    ends_s = min(ends_s, begun_s + LONGEST_S)
    principal = claims.get("sub")
    return Token(text, begun_s, ends_s, principal if isinstance(principal, str) else "penstock")


def _claims(text: str) -> dict[str, Any]:
    """What a JSON Web Token says, unchecked: the broker checks it. Empty for other tokens."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _file(kafka: config.Kafka, oauth: config.OAuth) -> Callable[[], Token]:
    path = Path(_needed(oauth, "token_file"))

    def fetch() -> Token:
        try:
            text = config.secret_text(path).strip()
        except (OSError, ValueError) as error:
            raise Transient(f"kafka.oauth.token_file {path} cannot be read: {error}") from error
        # It is read again for each new connection, since nobody tells when it is written anew.
        now_s = time.time()
        token = _token(text, now_s, None)
        if not text or token.ends_s <= now_s:
            raise Transient(f"the token in kafka.oauth.token_file {path} has ended or is empty")
        return token._replace(begun_s=now_s - 4 * (token.ends_s - now_s))

    return fetch


def _msk(kafka: config.Kafka, oauth: config.OAuth) -> Callable[[], Token]:
    named = _MSK_HOST.search(kafka.bootstrap_servers)
    region = oauth.region or (named[1] if named else None)
    if region is None:
        raise usage(
            'kafka.oauth.region is needed for provider = "aws-msk-iam": the names of '
            "kafka.bootstrap_servers do not tell it"
        )
    session = importlib.import_module("botocore.session")
    # One session for the process: the role's session name is a part of the principal, which must
    # not change when a connection authenticates itself again.
    chain = session.Session()

    def fetch() -> Token:
        errors = importlib.import_module("botocore.exceptions")
        now_s = time.time()
        try:
            credentials = chain.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except (
            errors.HTTPClientError,
            errors.ConnectionError,
            errors.MetadataRetrievalError,
            errors.CredentialRetrievalError,  # of a program of the profile, too
        ) as error:
            raise Transient(f"AWS's credentials cannot be had: {error}") from error
        except errors.BotoCoreError as error:  # a profile that is missing, a login that is over
            raise usage(f"AWS's credentials cannot be had: {error}") from error
        except errors.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500 or code in _BUSY:
                raise Transient(f"AWS gives no credentials now: {error}") from error
            raise usage(f"AWS refuses the credentials of this process: {error}") from error
        if frozen is None:
            raise usage(
                'kafka.oauth.provider = "aws-msk-iam": AWS\'s usual places have no credentials '
                "(AWS_ACCESS_KEY_ID, a profile, a web identity, the machine's role)"
            )
        # A session ends with the credentials that signed its token.
        end = getattr(credentials, "_expiry_time", None)
        left_s = MSK_S if end is None else end.timestamp() - now_s
        return Token(msk_token(region, frozen), now_s, now_s + min(MSK_S, left_s))

    return fetch


def msk_token(region: str, credentials: Any, *, agent: str = MSK_AGENT) -> str:
    """The presigned address of an action of MSK, as its brokers take it in the place of a token."""
    auth = importlib.import_module("botocore.auth")
    request_kind = importlib.import_module("botocore.awsrequest").AWSRequest
    request = request_kind(
        method="GET",
        url=f"https://kafka.{region}.amazonaws.com/",
        params={"Action": "kafka-cluster:Connect"},
    )
    auth.SigV4QueryAuth(credentials, "kafka-cluster", region, expires=MSK_S).add_auth(request)
    # The signature does not cover what is behind it.
    signed = f"{request.url}&User-Agent={quote(agent, safe='')}"
    return base64.urlsafe_b64encode(signed.encode()).decode().rstrip("=")


def _azure(kafka: config.Kafka, oauth: config.OAuth) -> Callable[[], Token]:
    identity = _library("azure.identity", 'kafka.oauth.provider = "azure"', "azure")
    errors = importlib.import_module("azure.core.exceptions")
    host = _EVENT_HUBS_HOST.search(kafka.bootstrap_servers)
    scope = oauth.scope or f"https://{host[0] if host else ''}/.default"
    named = {} if oauth.client_id is None else {"managed_identity_client_id": oauth.client_id}
    credential = identity.DefaultAzureCredential(**named)

    def fetch() -> Token:
        begun_s = time.time()
        try:
            answer = credential.get_token(scope)
        except errors.AzureError as error:
            # The last place of the chain that could be asked decides. Without an answer nobody has
            # refused us.
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (400, 401, 403):
                raise usage(f"Azure refuses the credentials of this process: {error}") from error
            raise Transient(f"Azure gives no token: {error}") from error
        return _token(answer.token, begun_s, answer.expires_on - begun_s)

    return fetch


def _gcp(kafka: config.Kafka, oauth: config.OAuth) -> Callable[[], Token]:
    auth = _library("google.auth", 'kafka.oauth.provider = "gcp"', "gcp")
    transport = _library("google.auth.transport.requests", 'kafka.oauth.provider = "gcp"', "gcp")
    errors = importlib.import_module("google.auth.exceptions")
    scope = oauth.scope or "https://www.googleapis.com/auth/cloud-platform"
    try:
        credentials, _ = auth.default(scopes=[scope])
    except errors.DefaultCredentialsError as error:
        raise usage(f'kafka.oauth.provider = "gcp": {error}') from error

    def fetch() -> Token:
        begun_s = time.time()
        try:
            credentials.refresh(transport.Request())
        except errors.GoogleAuthError as error:
            if isinstance(error, errors.TransportError) or error.retryable:
                raise Transient(f"Google gives no token: {error}") from error
            raise usage(f"Google refuses the credentials of this process: {error}") from error
        expiry = credentials.expiry  # in UTC, without saying so
        end_s = expiry.replace(tzinfo=UTC).timestamp() if expiry else begun_s + UNTOLD_S
        who = getattr(credentials, "service_account_email", "") or ""
        return Token(google_token(credentials.token, who, begun_s, end_s), begun_s, end_s, who)

    return fetch


def google_token(access: str, who: str, begun_s: float, end_s: float) -> str:
    """Google's own form: it looks like a JSON Web Token, and its third part is the access token."""
    head = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": int(end_s), "iss": "Google", "iat": int(begun_s), "sub": who}
    parts = (orjson.dumps(head), orjson.dumps(claims), access.encode())
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _library(name: str, what: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_extra(what, extra, error) from error
