"""fake-gcs-server, built by Go: a stand-in for Google Cloud Storage that keeps versions."""

import http.client
import json
from pathlib import Path

from realstack import layout
from realstack.errors import NotReady
from realstack.prerequisites import go_install
from realstack.service import Launch, Ports

MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
BUCKET = "penstock"


class FakeGcs:
    name = "gcs"
    ports = ("gcs",)

    @property
    def binary(self) -> Path:
        return layout.cache() / f"fake-gcs-{MODULE.rpartition('@')[2]}" / "fake-gcs-server"

    def build(self, within_s: float | None = None) -> None:
        go_install(MODULE, self.binary, what="about a minute", within_s=within_s)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        address = f"127.0.0.1:{ports['gcs']}"
        flags = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(ports["gcs"])]
        more = ["-backend", "memory", "-public-host", address, "-log-level", "warn"]
        return Launch([str(self.binary), *flags, *more])

    def probe(self, ports: Ports) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ports["gcs"], timeout=5)
        body, headers = json.dumps({"name": BUCKET}), {"Content-Type": "application/json"}
        try:
            connection.request("POST", "/storage/v1/b?project=penstock", body, headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(f"fake-gcs-server does not answer: {error}") from error
        finally:
            connection.close()
        if response.status not in (200, 409):
            raise NotReady(f"fake-gcs-server answers {response.status}")
