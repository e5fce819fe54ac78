"""The name under which a member keeps its place in the group, over a restart.

Rule: a name is one member's alone. `{hostname}` makes it so where each worker has a host of its
own, as in a StatefulSet; a supervisor adds its processes' numbers. Owner: the sources.
"""

import re
import socket
from typing import Final

from penstock import config
from penstock.errors import usage

HOSTNAME: Final = "{hostname}"
# What Kafka's own client takes.
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def instance_of(settings: config.Kafka) -> str | None:
    """None: a member without a name, whose place is free when it leaves. Raises `Fatal`."""
    if settings.instance_id is None:
        return None
    name = settings.instance_id.replace(HOSTNAME, socket.gethostname())
    if not _ALLOWED.fullmatch(name):
        raise usage(
            f"kafka.instance_id = {settings.instance_id!r} makes {name!r}; Kafka takes up to 249 "
            f"of a-z, A-Z, 0-9, '.', '_' and '-', and {HOSTNAME} stands for this host's name"
        )
    return name
