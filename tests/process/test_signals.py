"""Signals are the worker's: no library has a handler of its own, and none ends a call of its own.

What was looked for, in a process that imported every part and asked a store through each client:

- pyarrow takes SIGINT and SIGTERM while it reads CSV, Parquet or datasets, unless switched off.
- obstore (tokio), librdkafka, aiokafka, aiobotocore, numpy, simdjson: none.
- asyncio's `Runner` takes SIGINT in the main thread; the worker replaces it by its own.
- click has none; Ctrl-C in a command that does not drain is a KeyboardInterrupt.
"""

import subprocess
import sys
from typing import Final

# All modules, then one request over each object client; prints what is caught that was not before.
LIBRARIES: Final = """
import asyncio, importlib, pkgutil, re, signal

def caught():
    mask = int(re.search(r"SigCgt:\\t(\\w+)", open("/proc/self/status").read())[1], 16)
    # 32 and 33 are the C library's own, for its threads.
    return {number for number in {*range(1, 65)} - {32, 33} if mask >> (number - 1) & 1}

before = caught()
import penstock
for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not found.name.endswith("__main__") and ".handlers" not in found.name:
        importlib.import_module(found.name)
from penstock import config
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.errors import Unreachable
from penstock.ports import Location

async def ask():
    settings = config.Objects(
        endpoint_url="http://127.0.0.1:1", key="k", secret="s", region="us-east-1"
    )
    for client in (ObstoreObjects(settings), S3fsObjects(settings)):
        try:
            await client.open(Location("bucket", "key"))
        except Unreachable:
            pass
        await client.aclose()

asyncio.run(ask())
print(sorted(caught() - before))
"""

# SIGTERM arrives in the middle of a read, of which the file object makes sure.
ARROW: Final = """
import io, os, signal
from pyarrow import csv
import penstock.formats.registry

got = []
signal.signal(signal.SIGTERM, lambda *_: got.append(1))

class File(io.BytesIO):
    def read(self, *size):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().read(*size)

table = csv.read_csv(File(b"a,b\\n" + b"1,2\\n" * 500_000))
print(table.num_rows, len(got) > 0)
"""


def said_by(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_signal_in_the_middle_of_a_read_reaches_the_worker_and_not_arrow() -> None:
    assert said_by(ARROW) == "500000 True"


def test_no_library_catches_a_signal() -> None:
    assert said_by(LIBRARIES) == "[]"
