"""The address of an S3 bucket, and which hosts obstore may ask for a bucket.

Rule: obstore follows redirects to any host, with the session token in the request, and has no
setting against that. So obstore is told to use a proxy for all hosts except the store's own. This
proxy does not exist, so a request to another host fails. Pure, except that the environment is asked
for proxies. Owner: all clients of S3, and the clients that read and write through obstore.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock import config

if TYPE_CHECKING:
    from obstore.store import ClientConfig

DEFAULT_REGION: Final = "us-east-1"
# A bucket name that can be the first label of a host, so that a certificate for `*.host` covers it.
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def is_virtual(settings: config.Access, bucket: str) -> bool:
    """True if the bucket's name is part of the host's name. AWS prefers such addresses, and most
    other servers do not know them.
    """
    if settings.addressing == "auto":
        return settings.endpoint_url is None and _LABEL.fullmatch(bucket) is not None
    return settings.addressing == "virtual" and _LABEL.fullmatch(bucket) is not None


def address_of(settings: config.Access, region: str, bucket: str) -> tuple[str, str]:
    """The bucket's scheme and host, and the path that stands before each key."""
    end = ".cn" if region.startswith("cn-") else ""
    endpoint = settings.endpoint_url or f"https://s3.{region}.amazonaws.com{end}"
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    if is_virtual(settings, bucket):
        return f"{parts.scheme}://{bucket}.{netloc}", path
    return f"{parts.scheme}://{netloc}", f"{path}/{bucket}"


# The proxy that does not exist: no host can have this address, so a connection to it fails at once.
# If obstore's error names this address, a redirect led to another host.
NOWHERE: Final = "255.255.255.255:1"


def is_proxied(host_url: str) -> bool:
    """True if the environment names a proxy for this host. Then the proxy decides which hosts are
    reached.
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
