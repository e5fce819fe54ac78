"""The options of a TCP connection by which the kernel finds out that its other end is gone.

Rule: every connection of ours has them, whichever client made it, where the client gives its socket
away. The kernel asks an idle connection for a sign of life, and waits a bounded time for whatever
it has sent. Without these options Linux asks after two hours, and waits for a quarter of an hour.
Not every dead connection can be found in this way: a proxy in the middle answers for an end that
is gone. So the clients also bound the silence of a connection themselves.
"""

import socket
from typing import Final

# The first question after 5 s of silence, then one every 2 s. After 9 s without an answer the
# connection is given up. Load balancers take such a question for traffic. What was sent may wait
# for longer: a server that works on one call (`model.timeout_ms`, 30 s) may read no other
# meanwhile, and Linux counts a window that stays closed as silence, too (tcp(7)).
_OPTIONS: Final = (
    ("TCP_KEEPIDLE", 5),
    ("TCP_KEEPALIVE", 5),  # macOS's name of TCP_KEEPIDLE
    ("TCP_KEEPINTVL", 2),
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 35_000),
)


def keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
