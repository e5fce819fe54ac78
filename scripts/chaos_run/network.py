"""Several hosts on one machine: network namespaces around a router that can lose packets.

Rule: the hosts, and every process on them, live in the namespaces of `private`, and end with these
namespaces. Rules of the router's routing table drop packets silently and by direction, so no
firewall is needed. Owner: the run.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PRIVATE = [
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--mount-proc"),
    *("--fork", "--kill-child", "--", "sh", "-c"),
]
# `ip netns` keeps a mount for each host in /run. A private /run leaves the machine's own alone.
_NAMES = "mount -t tmpfs none /run"
_TRY = (
    f"{_NAMES} && ip netns add a && ip link add v0 type veth peer name eth0 netns a"
    " && ip rule add from 10.77.0.2 to 10.77.1.2 blackhole"
)


def private(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as root of new namespaces. No process in these
    namespaces outlives the command, and the command does not outlive its caller.
    """
    return [*_PRIVATE, f'{_NAMES} && exec "$@"', "sh", *command]


def refusal() -> str | None:
    """Why such hosts cannot be made on this machine. None: they can be made."""
    try:
        answer = subprocess.run([*_PRIVATE, _TRY], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"no program {error.filename}"
    return answer.stderr.strip() or "refused" if answer.returncode else None


class Network:
    """The hosts, by name. A host is made when it is first named."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        _ip("link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def address(self, host: str) -> str:
        if host not in self._addresses:
            number = len(self._addresses)
            near, far = f"10.77.{number}.1", f"10.77.{number}.2"
            _ip("netns", "add", host)
            _ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("addr", "add", f"{near}/24", "dev", f"v{number}")
            _ip("link", "set", f"v{number}", "up")
            _ip("-n", host, "addr", "add", f"{far}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "route", "add", "default", "via", near)
            self._addresses[host] = far
        return self._addresses[host]

    def launcher(self, host: str) -> tuple[str, ...]:
        """The words to put before a command line so that it runs on this host. The process id
        stays.
        """
        self.address(host)
        return ("ip", "netns", "exec", host)

    @contextmanager
    def cut(self, ways: Sequence[tuple[str, str]]) -> Iterator[None]:
        """During the block, drop what the first host of each pair sends to the second."""
        rules = [
            ("from", self.address(sender), "to", self.address(receiver), "blackhole")
            for sender, receiver in ways
        ]
        for rule in rules:
            _ip("rule", "add", *rule)
        try:
            yield
        finally:
            for rule in rules:
                _ip("rule", "del", *rule)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
