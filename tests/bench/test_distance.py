"""How long requests of a trial wait on their way to a service that is far away."""

import os
import random
import select
import socket
import statistics
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner

from penstock.commands.bench import bench
from penstock.tools.bench.distance import FarAddress, Relayed, Slow, wait_s

# Starts a relay and is gone, as a bench that is killed.
BENCH = """
import os, subprocess, sys
relay = subprocess.Popen(
    [sys.executable, "-m", "penstock.tools.bench.distance"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False,
)
relay.stdin.write(b"[]")
relay.stdin.close()
relay.stdout.readline()
os._exit(0)
"""


def test_a_relay_ends_with_a_bench_that_was_killed() -> None:
    ours, relays = os.pipe()
    subprocess.run([sys.executable, "-c", BENCH], pass_fds=[relays], check=True)
    os.close(relays)
    is_closed, _, _ = select.select([ours], [], [], 60.0)
    os.close(ours)
    assert is_closed


def test_a_relay_that_is_stopped_ends_its_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        way = FarAddress("127.0.0.1", service.getsockname()[1], "http", wait_ms=0)
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "penstock.tools.bench.distance"]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as relay:
            assert relay.stdin
            assert relay.stdout
            relay.stdin.write(msgspec.json.encode([way]))
            relay.stdin.close()
            (port,) = msgspec.json.decode(relay.stdout.readline(), type=Relayed).ports
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"G")
                served, _ = service.accept()
                with served:
                    assert served.recv(1) == b"G"
                    relay.terminate()
                    assert relay.stderr
                    assert relay.stderr.read() == b""
                    assert client.recv(1) == b""
    assert relay.returncode == 0


def waits_ms(way: FarAddress) -> list[float]:
    chance = random.Random(1)
    return [1000 * wait_s(way, chance) for _ in range(20_000)]


def test_half_of_the_requests_wait_longer_than_the_distance() -> None:
    waits = waits_ms(FarAddress("store", 80, "http", wait_ms=30, spread=0.4))
    assert statistics.median(waits) == pytest.approx(30, rel=0.02)
    assert statistics.quantiles(waits, n=100)[-1] == pytest.approx(30 * 2.5, rel=0.1)


def test_a_share_of_the_requests_is_slow() -> None:
    waits = waits_ms(FarAddress("store", 80, "http", wait_ms=3, spread=0.4, slow=Slow(0.02, 1000)))
    assert waits.count(1000) / len(waits) == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("kind", ["streams", "throughput"])
@pytest.mark.parametrize("text", ["0.002", "a:b", "2:1000", "0.1:-1", "0.1:70000"])
def test_a_share_that_is_none_is_refused(text: str, kind: str) -> None:
    answer = CliRunner().invoke(bench, [kind, "--slow", text])
    assert answer.exit_code == 2
    assert "--slow" in answer.output
