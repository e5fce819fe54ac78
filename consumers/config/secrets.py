"""What no line may show: which keys are secret, and the credentials in addresses.

Rule: a key is secret by its name, an option of another library by what its name contains. Owner:
the configuration, which hides them where it is printed.
"""

import re
from base64 import b64encode
from urllib.parse import unquote, urlsplit

SECRET_KEYS = frozenset({"sasl_password", "key", "secret", "token"})
# Addresses may carry credentials: `http://user:password@host/?token=...`.
URL_KEYS = frozenset({"url", "endpoint_url", "management_url"})
# Of a model addresses, of a store names, which hold none.
URL_LIST_KEYS = frozenset({"replicas", "models"})
MASK = "********"
# Options of other people's libraries are secret by their names.
_SECRET_OPTION = re.compile(r"pass|secret|token|key|cred|auth|sas", re.IGNORECASE)


def is_secret_option(name: str) -> bool:
    return _SECRET_OPTION.search(name) is not None


def shown_url(url: str) -> str:
    """The address without the credentials in it."""
    for secret in sorted(_credentials(url), key=len, reverse=True):
        url = url.replace(secret, MASK)
    return url


def url_secrets(url: str) -> set[str]:
    """The credentials in an address, as it writes them, as they are, and as a header has them."""
    written = _credentials(url)
    user_and_password = unquote(url.partition("://")[2].partition("/")[0].rpartition("@")[0])
    in_header = b64encode(user_and_password.encode()).decode()
    return (written | set(map(unquote, written)) | {in_header}) - {""}


def _credentials(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return {url}
    user_and_password = parts.netloc.rpartition("@")[0]
    _, colon, password = user_and_password.partition(":")
    return {password if colon else user_and_password, parts.query} - {""}
