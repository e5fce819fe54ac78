"""How obstore reaches a bucket: addresses, certificates, credentials.

Rule: the caller retries reads, obstore retries writes; credentials are asked for when those at hand
are no longer fresh. obstore follows redirects to any host, with the session token in the request,
and has no setting against it. So it is given an impossible proxy for all hosts but the store's own:
a redirect to another host then fails. Owner: the clients that read and write through obstore.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from botocore.exceptions import BotoCoreError
from botocore.session import Session
from obstore.store import S3Store

from penstock import config
from penstock.adapters.http.certificates import authorities
from penstock.adapters.s3.access import address_of, is_virtual
from penstock.adapters.stores.names import (
    CONNECT_TIMEOUT_S,
    DEFAULT_REGION,
    check_credentials,
    no_credentials,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Credential

# obstore's limit for a whole transfer, 30 s, would cut off a body whose reader waits for room.
# Silence is limited instead, by the read timeout.
WHOLE_TRANSFER: Final = timedelta(days=1)
# How long credentials from botocore last at least: it renews those that have less left.
CREDENTIALS_LAST: Final = timedelta(minutes=10)

# The impossible proxy: no host can have this address, so connecting fails at once. Its name in
# obstore's error tells that a redirect led to another host.
NOWHERE: Final = "255.255.255.255:1"

# From a bucket's name to its store.
Buckets = Callable[[str], "ObjectStore"]


def is_proxied(host_url: str) -> bool:
    """True if the environment names a proxy for this host; then the proxy decides which hosts can
    be reached.
    """
    parts, proxies = urlsplit(host_url), getproxies()
    is_named = parts.scheme in proxies or "all" in proxies
    return is_named and not proxy_bypass(parts.hostname or "")


def confined(options: "ClientConfig", urls: Sequence[str]) -> "ClientConfig":
    """Options that reach only the hosts of these addresses; the store's own must be the first."""
    if is_proxied(urls[0]):
        return options
    hosts = ",".join(urlsplit(url).hostname or "" for url in urls)
    return {**options, "proxy_url": f"http://{NOWHERE}", "proxy_excludes": hosts}


def client_options(settings: config.Access, section: str, read_timeout_s: float) -> "ClientConfig":
    """Options of every cloud's client. It never follows a redirect from https to http."""
    options: ClientConfig = {
        "allow_http": (settings.endpoint_url or "").startswith("http:"),
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "read_timeout": timedelta(seconds=read_timeout_s),
        "timeout": WHOLE_TRANSFER,
    }
    if settings.ssl_cafile:
        options["root_certificate"] = authorities(settings.ssl_cafile, f"{section}.ssl_cafile")
    return options


def s3_buckets(
    settings: config.Access,
    section: str,
    read_timeout_s: float,
    retries: "RetryConfig | None" = None,
) -> Buckets:
    """How to reach a bucket: as configured, or by botocore's chain if no keys are configured. The
    caller retries reads; `retries` is for writes.
    """
    check_credentials(settings, section)
    try:
        session = Session(profile=settings.profile)
        region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
        credentials = None if settings.anon else _credentials(settings, session, section)
    except BotoCoreError as error:
        raise no_credentials(error, section) from None
    options: Any = {"region": region, "skip_signature": settings.anon}
    of_client = client_options(settings, section, read_timeout_s)

    def reach(bucket: str) -> S3Store:
        in_host = is_virtual(settings, bucket)
        host_url, path = address_of(settings, region, bucket)
        more: Any = {"virtual_hosted_style_request": in_host}
        if settings.endpoint_url:
            more["endpoint"] = host_url + path if in_host else settings.endpoint_url
        return S3Store(
            bucket,
            config=options | more,
            credential_provider=credentials,
            client_options=confined(of_client, [host_url]),
            retry_config=retries or {"max_retries": 0},
        )

    return reach


def _credentials(
    settings: config.Access, session: Session, section: str
) -> "Callable[[], S3Credential]":
    """A function that obstore calls for fresh credentials. Configured keys are used with their own
    token only, never with one from the environment.
    """
    if settings.key is not None and settings.secret is not None:
        session.set_credentials(settings.key, settings.secret, settings.token)
    source = session.get_credentials()
    if source is None:
        raise no_credentials("no credentials found", section)

    def fresh() -> "S3Credential":
        frozen = source.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    return fresh
