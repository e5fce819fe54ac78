"""Kerberos: where tickets come from, and what it means if there is none.

Rule: a key distribution centre that cannot be reached is an outage; one that refuses us, or a
keytab that cannot be used, ends the process with its words.
"""

import os
from typing import Final

from penstock import config
from penstock.errors import PenstockError, Transient, usage
from penstock.packages import missing_extra

# MIT's library fetches and renews tickets by itself if this variable names a keytab, and keeps them
# in the cache that the other names.
_KEYTAB: Final = "KRB5_CLIENT_KTNAME"
_CACHE: Final = "KRB5CCNAME"
# Numbers of krb5.h, without their sign: the centre cannot be reached, or found, or is not available
# now; a ticket has ended, which whoever fills the cache may be about to renew.
_PASSING: Final = frozenset(
    number & 0xFFFFFFFF for number in (-1765328228, -1765328230, -1765328355, -1765328352)
)


def check_kerberos(kafka: config.Kafka) -> None:
    """Raises `Fatal` if the extra is missing."""
    try:
        import gssapi  # noqa: F401, PLC0415 (an extra)
    except ImportError as error:
        raise missing_extra('kafka.sasl_mechanism = "GSSAPI"', "kerberos", error) from error
    if kafka.kerberos_keytab is not None:
        os.environ[_KEYTAB] = kafka.kerberos_keytab
        os.environ.setdefault(_CACHE, "MEMORY:penstock")


def of_kerberos(error: Exception) -> PenstockError:
    """Our error for one of gssapi's."""
    if getattr(error, "min_code", None) in _PASSING:
        return Transient(f"Kerberos gives no ticket now: {error}")
    return usage(
        f"Kerberos gives no ticket: {error}\n"
        "Correct kafka.kerberos_keytab, or fill the ticket cache by kinit."
    )
