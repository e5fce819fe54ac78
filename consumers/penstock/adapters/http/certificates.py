"""Which authorities a TLS client trusts, and the errors of libraries about a certificate.

Rule: a certificate that is not trusted is `Fatal`: waiting cannot help.
"""

import functools
import re
import ssl
from pathlib import Path

from penstock.errors import Fatal, usage

# The texts with which OpenSSL, BoringSSL (in gRPC) and rustls report a certificate that they do not
# trust.
_UNTRUSTED = re.compile(
    r"certificate verify failed[^()]*|CERTIFICATE_VERIFY_FAILED: [^():]*|"
    r"InvalidCertificate\(\s*(\w+)"
)


def trusting(cafile: str | None, key: str) -> ssl.SSLContext:
    """A TLS context that trusts the authorities of `cafile`, or those of the system if `cafile` is
    None. `key`: the setting that errors name.
    """
    if cafile is None:
        return _system()
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise usage(f"{key} = {cafile!r} cannot be used: {error}") from None


@functools.cache
def _system() -> ssl.SSLContext:
    """One context for the whole process, because reading the authorities takes 70 ms of CPU."""
    return ssl.create_default_context()


def authorities(cafile: str, key: str) -> bytes:
    """The checked content of `cafile`, for libraries that do not take a TLS context."""
    trusting(cafile, key)
    return Path(cafile).read_bytes()


def untrusted(reason: str, key: str) -> Fatal | None:
    """The `Fatal` to raise if `reason`, a library's error text, is about a certificate; else None.
    `key`: the setting that the error names.
    """
    match = _UNTRUSTED.search(reason)
    if match is None:
        return None
    return usage(
        f"the server's certificate is not trusted ({match[1] or match[0].strip()}); set {key} to a "
        "file with the authority that signed it, or correct the name in the address"
    )
