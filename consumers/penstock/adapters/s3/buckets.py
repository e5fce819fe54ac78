"""Finds the address of an S3 bucket, and opens buckets for obstore: certificates, credentials,
hosts.

Rule: obstore follows redirects to any host, sends the session token along, and has no setting
against that. So it is told to use a proxy, which does not exist, for all hosts except the store's
own: a request to another host fails. Reads are retried by the caller, writes by obstore.
"""

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from botocore.configprovider import ConfiguredEndpointProvider
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from msgspec.structs import replace
from obstore.store import S3Store

from penstock import config
from penstock.adapters.http.certificates import authorities
from penstock.adapters.http.connections import IDLE_S
from penstock.adapters.stores.refusals import no_credentials
from penstock.adapters.stores.transfer import CONNECT_TIMEOUT_S
from penstock.errors import usage

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Credential


DEFAULT_REGION: Final = "us-east-1"


def check_credentials(settings: config.Access, section: str) -> None:
    if (settings.key is None) != (settings.secret is None):
        raise usage(f"{section}.key and {section}.secret go together: set both or neither")
    if settings.token is not None and settings.key is None:
        raise usage(f"{section}.token goes together with {section}.key and {section}.secret")


def as_profile_says(settings: config.Access, section: str) -> config.Access:
    """Raises `Fatal` if the profile is not there, or asks for what no client can do."""
    session = Session(profile=settings.profile)
    try:
        scoped, of = session.get_scoped_config(), session.get_config_variable
        # botocore does not know AWS_REGION, but the command line does.
        region_name = os.environ.get("AWS_REGION") or of("region")
        region = settings.region or region_name or DEFAULT_REGION
        s3_keys: dict[str, Any] = scoped["s3"] if isinstance(scoped.get("s3"), dict) else {}
        cafile = settings.ssl_cafile or of("ca_bundle")
        endpoint, is_aws = settings.endpoint_url, False
        if endpoint is None and not of("ignore_configured_endpoint_urls"):
            endpoint = ConfiguredEndpointProvider(session.full_config, scoped, "s3", {}).provide()
            _check(endpoint, section)
        if endpoint is None:
            endpoint = _of_aws(
                region,
                is_fast=_is_true(s3_keys.get("use_accelerate_endpoint")),
                has_ipv6=_is_true(s3_keys.get("use_dualstack_endpoint"))
                or bool(of("use_dualstack_endpoint")),
                is_fips=bool(of("use_fips_endpoint")),
            )
            is_aws = endpoint is not None
    except BotoCoreError as error:
        raise no_credentials(error, section) from None
    addressing = settings.addressing
    if addressing == "auto" and s3_keys.get("addressing_style") in ("path", "virtual"):
        addressing = s3_keys["addressing_style"]
    elif addressing == "auto" and is_aws:
        addressing = "virtual"
    return replace(
        settings, region=region, endpoint_url=endpoint, addressing=addressing, ssl_cafile=cafile
    )


def _of_aws(region: str, *, is_fast: bool, has_ipv6: bool, is_fips: bool) -> str | None:
    """The address of AWS that these settings ask for; None: the usual one. Source: "Amazon S3
    endpoints and quotas", AWS General Reference.
    """
    end = ".cn" if region.startswith("cn-") else ""
    stack = ".dualstack" if has_ipv6 else ""
    if is_fast:
        return f"https://s3-accelerate{stack}.amazonaws.com"
    if has_ipv6 or is_fips:
        return f"https://s3{'-fips' if is_fips else ''}{stack}.{region}.amazonaws.com{end}"
    return None


def _is_true(text: object) -> bool:
    return str(text).lower() == "true"


def _check(endpoint: str | None, section: str) -> None:
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise usage(
            f"{section}: the profile's endpoint_url = {endpoint!r} is not of the form "
            f"https://host; correct it, or set {section}.endpoint_url"
        )


# A function that opens a bucket for obstore; its argument is the bucket's name.
Buckets = Callable[[str], "ObjectStore"]

# Matches a bucket name that can be the first label of a host name. A certificate for `*.host` then
# covers the name.
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
# The address of the proxy that does not exist. No host can have this address, so a connection to it
# fails at once. If obstore's error names this address, a redirect led to another host.
NOWHERE: Final = "255.255.255.255:1"
# obstore's own limit for a whole transfer, 30 s, would cut off a body while its reader waits for
# room in the byte budget. This limit is longer than any transfer; the read timeout limits the
# silence instead.
WHOLE_TRANSFER: Final = timedelta(days=1)
# obstore is told that credentials last this long: botocore renews credentials that have less time
# left.
CREDENTIALS_LAST: Final = timedelta(minutes=10)


def is_virtual(settings: config.Access, bucket: str) -> bool:
    """True if requests name the bucket as part of the host's name. AWS prefers such addresses; most
    other servers do not know them.
    """
    if settings.addressing == "auto":
        return settings.endpoint_url is None and _LABEL.fullmatch(bucket) is not None
    return settings.addressing == "virtual" and _LABEL.fullmatch(bucket) is not None


def address_of(settings: config.Access, region: str, bucket: str) -> tuple[str, str]:
    """Returns two texts: the bucket's scheme and host; and the path that stands before each key."""
    end = ".cn" if region.startswith("cn-") else ""
    endpoint = settings.endpoint_url or f"https://s3.{region}.amazonaws.com{end}"
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    if is_virtual(settings, bucket):
        return f"{parts.scheme}://{bucket}.{netloc}", path
    return f"{parts.scheme}://{netloc}", f"{path}/{bucket}"


def is_proxied(host_url: str) -> bool:
    """True if the environment names a proxy for this host. In that case the proxy decides which
    hosts are reached.
    """
    parts, proxies = urlsplit(host_url), getproxies()
    is_named = parts.scheme in proxies or "all" in proxies
    return is_named and not proxy_bypass(parts.hostname or "")


def confined(options: "ClientConfig", urls: Sequence[str]) -> "ClientConfig":
    """The options, changed so that obstore reaches only the hosts of `urls`. The first of `urls`
    must be the store's own. If the environment names a proxy, the options are not changed.
    """
    if is_proxied(urls[0]):
        return options
    hosts = ",".join(urlsplit(url).hostname or "" for url in urls)
    return {**options, "proxy_url": f"http://{NOWHERE}", "proxy_excludes": hosts}


def client_options(settings: config.Access, section: str, read_timeout_s: float) -> "ClientConfig":
    """Options for the client of any cloud. If https is configured, plain http is not allowed, so a
    redirect from https to http fails.
    """
    options: ClientConfig = {
        "allow_http": (settings.endpoint_url or "").startswith("http:"),
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "read_timeout": timedelta(seconds=read_timeout_s),
        "timeout": WHOLE_TRANSFER,
        "pool_idle_timeout": timedelta(seconds=IDLE_S),
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
    """Returns the function that opens a bucket. If no keys are configured, the credentials come
    from botocore's chain. `retries` is given only for writes, because the caller retries reads.
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
    """Returns the function that obstore calls for fresh credentials. Configured keys are never
    combined with a session token from the environment.
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
