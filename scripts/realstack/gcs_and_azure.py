"""Stand-ins for two clouds' stores: fake-gcs-server, built by Go, which keeps versions, for Google
Cloud Storage; and Azurite, Microsoft's own, from npm, for Azure Blob Storage.
"""

import base64
import hashlib
import hmac
import http.client
import json
import shutil
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from realstack import layout
from realstack.prerequisites import go_install, run
from realstack.service import Launch, Missing, NotReady, Ports

GCS_MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
GCS_BUCKET = "penstock"


class FakeGcs:
    name = "gcs"
    ports = ("gcs",)

    @property
    def binary(self) -> Path:
        return layout.cache() / f"fake-gcs-{GCS_MODULE.rpartition('@')[2]}" / "fake-gcs-server"

    def build(self, within_s: float | None = None) -> None:
        go_install(GCS_MODULE, self.binary, what="about a minute", within_s=within_s)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        address = f"127.0.0.1:{ports['gcs']}"
        flags = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(ports["gcs"])]
        more = ["-backend", "memory", "-public-host", address, "-log-level", "warn"]
        return Launch([str(self.binary), *flags, *more])

    def probe(self, ports: Ports) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ports["gcs"], timeout=5)
        body, headers = json.dumps({"name": GCS_BUCKET}), {"Content-Type": "application/json"}
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


AZURITE = "azurite@3.37.0"
# The account and key that Azurite's documentation publishes.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
AZURE_CONTAINER = "penstock"


class Azurite:
    name = "azure"
    ports = ("azure",)

    @property
    def environment(self) -> Path:
        return layout.cache() / AZURITE.replace("@", "-")

    def build(self, within_s: float | None = None) -> None:
        def make(folder: Path) -> None:
            if shutil.which("npm") is None:
                raise Missing("missing: npm, which brings Azurite (on Debian: apt-get install npm)")
            npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
            run(
                [*npm, "--prefix", str(folder), AZURITE],
                what="installing Azurite, 150 MB",
                cwd=folder,
                within_s=within_s,
            )

        layout.build_once(self.environment, make)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        program = self.environment / "node_modules/azurite/dist/src/blob/main.js"
        flags = ["--blobHost", "127.0.0.1", "--blobPort", str(ports["azure"]), "--silent"]
        # Azurite must also answer clients that are newer than the versions it knows.
        more = ["--location", str(folder), "--skipApiVersionCheck", "--disableTelemetry"]
        return Launch(["node", str(program), *flags, *more])

    def probe(self, ports: Ports) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ports["azure"], timeout=5)
        try:
            status = ask_azure(connection, "PUT", AZURE_CONTAINER, query={"restype": "container"})[
                0
            ]
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(f"Azurite does not answer: {error}") from error
        finally:
            connection.close()
        if status not in (201, 409):
            raise NotReady(f"Azurite answers {status}")


def ask_azure(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request, signed by the rules of "Authorize with Shared Key" (Blob service). Only the
    lines that these requests need are filled in. `path`: container, or container/blob.
    """
    query, sent = query or {}, {"x-ms-version": "2021-12-02", **(headers or {})}
    sent["x-ms-date"] = formatdate(usegmt=True)
    encoded = quote(f"/{AZURE_ACCOUNT}/{path}")
    known = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent))
    asked = "".join(f"\n{name}:{query[name]}" for name in sorted(query))
    length = str(len(body)) if body else ""
    text = f"{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{known}/{AZURE_ACCOUNT}{encoded}{asked}"
    signed = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)
    sent["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(signed).decode()}"
    words = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    target = f"{encoded}?{words}" if words else encoded
    try:
        connection.request(method, target, body, sent)
    except ConnectionError:  # Azurite had closed the idle connection
        connection.close()
        connection.request(method, target, body, sent)
    response = connection.getresponse()
    return response.status, response.headers, response.read()
