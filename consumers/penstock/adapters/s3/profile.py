"""Reads from the profile of AWS what the settings leave open, as AWS's own command line reads it.

Rule: what is set in the configuration counts first, then the environment, then the profile. What is
found is put into the settings, so that all clients of S3 (the signed GET, obstore, s3fs; reading
and writing) go to the same address in the same form. Owner: those who open a client of S3.
"""

import os
from typing import Any
from urllib.parse import urlsplit

from botocore.configprovider import ConfiguredEndpointProvider
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from msgspec.structs import replace

from penstock import config
from penstock.adapters.s3.signing import DEFAULT_REGION
from penstock.adapters.stores.refusals import no_credentials
from penstock.errors import usage


def as_profile_says(settings: config.Access, section: str) -> config.Access:
    """Raises `Fatal` if the profile is not there, or asks for what no client can do."""
    session = Session(profile=settings.profile)
    try:
        scoped, of = session.get_scoped_config(), session.get_config_variable
        # botocore does not know AWS_REGION, but the command line does.
        found = os.environ.get("AWS_REGION") or of("region")
        region = settings.region or found or DEFAULT_REGION
        said: dict[str, Any] = scoped["s3"] if isinstance(scoped.get("s3"), dict) else {}
        cafile = settings.ssl_cafile or of("ca_bundle")
        endpoint, is_aws = settings.endpoint_url, False
        if endpoint is None and not of("ignore_configured_endpoint_urls"):
            endpoint = ConfiguredEndpointProvider(session.full_config, scoped, "s3", {}).provide()
            _check(endpoint, section)
        if endpoint is None:
            endpoint = _of_aws(
                region,
                is_fast=_is_true(said.get("use_accelerate_endpoint")),
                has_ipv6=_is_true(said.get("use_dualstack_endpoint"))
                or bool(of("use_dualstack_endpoint")),
                is_fips=bool(of("use_fips_endpoint")),
            )
            is_aws = endpoint is not None
    except BotoCoreError as error:
        raise no_credentials(error, section) from None
    addressing = settings.addressing
    if addressing == "auto" and said.get("addressing_style") in ("path", "virtual"):
        addressing = said["addressing_style"]
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
