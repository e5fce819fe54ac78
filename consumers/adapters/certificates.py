"""Which authorities a TLS client trusts, and how a library says that it does not trust a server.

Rule: a certificate that is not trusted is a setting to mend; waiting does not help.
"""

import functools
import re
import ssl
from pathlib import Path

from consumers.errors import EXIT_USAGE, Fatal

# The words of OpenSSL, of BoringSSL (gRPC's), and of rustls.
_UNTRUSTED = re.compile(
    r"certificate verify failed[^()]*|CERTIFICATE_VERIFY_FAILED: [^():]*|"
    r"InvalidCertificate\(\s*(\w+)"
)


def trusting(cafile: str | None, key: str) -> ssl.SSLContext:
    """The authorities of `cafile`; none: the system's. `key` is the setting, for messages."""
    if cafile is None:
        return _system()
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise Fatal(f"{key} = {cafile!r} cannot be used: {error}", exit_code=EXIT_USAGE) from None


@functools.cache
def _system() -> ssl.SSLContext:
    """One for all that are asked by this process: to read them takes 70 ms of CPU."""
    return ssl.create_default_context()


def authorities(cafile: str, key: str) -> bytes:
    """The file itself, for libraries that want that."""
    trusting(cafile, key)
    return Path(cafile).read_bytes()


def untrusted(said: str, key: str) -> Fatal | None:
    """The failure, if a library's words are about a certificate."""
    found = _UNTRUSTED.search(said)
    if found is None:
        return None
    return Fatal(
        f"the server's certificate is not trusted ({found[1] or found[0].strip()}); set {key} to a "
        "file with the authority that signed it, or correct the name in the address",
        exit_code=EXIT_USAGE,
    )
