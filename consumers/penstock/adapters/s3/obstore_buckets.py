"""Opens a bucket for obstore: address, certificates, credentials.

Rule: the caller retries reads, obstore retries writes. obstore asks for credentials when those that
it has are about to expire. Owner: the clients that read and write through obstore.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError
from botocore.session import Session
from obstore.store import S3Store

from penstock import config
from penstock.adapters.http.certificates import authorities
from penstock.adapters.s3.addresses import DEFAULT_REGION, address_of, confined, is_virtual
from penstock.adapters.s3.credentials import check_credentials
from penstock.adapters.stores.refusals import no_credentials
from penstock.adapters.stores.transfer import CONNECT_TIMEOUT_S

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Credential

# obstore's own limit for a whole transfer, 30 s, would cut off a body while its reader waits for
# room in the byte budget. Only silence is limited, by the read timeout.
WHOLE_TRANSFER: Final = timedelta(days=1)
# botocore renews credentials that have less time left than this.
CREDENTIALS_LAST: Final = timedelta(minutes=10)

# A function that opens a bucket for obstore; its argument is the bucket's name.
Buckets = Callable[[str], "ObjectStore"]


def client_options(settings: config.Access, section: str, read_timeout_s: float) -> "ClientConfig":
    """Options for the client of any cloud. With https, plain http is not allowed, so a redirect
    from https to http fails.
    """
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
    """The function that opens a bucket. Without configured keys the credentials come from
    botocore's chain. `retries`: only for writes, because the caller retries reads.
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
    """The function that obstore calls for fresh credentials. Configured keys are never combined
    with a session token from the environment.
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
