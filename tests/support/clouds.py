"""Shelves of the clouds' stand-ins: a fresh bucket that a test fills beside the adapter."""

import http.client
import json
import uuid
from typing import Any
from urllib.parse import quote

from penstock import config
from penstock.ports import Objects
from realstack.gcs_and_azure import AZURE_ACCOUNT, AZURE_KEY, ask_azure
from tests.support.services import model_server


class _Shelf:
    """A fresh bucket of a stand-in, and a connection of its own to it."""

    service: str

    def __init__(self) -> None:
        """Raises `Unavailable` where it was not asked for."""
        self.address = model_server(self.service)
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        self._http = http.client.HTTPConnection(self.address, timeout=30)
        self.objects: Objects
        self.make()

    def make(self) -> None:
        """Create the bucket."""
        raise NotImplementedError

    def close(self) -> None:
        self._http.close()


class GcsShelf(_Shelf):
    """A bucket of fake-gcs-server."""

    service = "gcs"
    scheme = "gs"

    def make(self) -> None:
        self._ask("POST", "/storage/v1/b?project=p", {"name": self.bucket})

    @property
    def settings(self) -> config.Store:
        return config.Store(url="gs://", endpoint_url=f"http://{self.address}", anon=True)

    def put(self, key: str, data: bytes) -> str:
        """Its entity tag. Google's own is another one for a GET than for its JSON interface."""
        etag: str = self._ask("POST", self._upload(key), data)["etag"]
        return etag

    def version(self, key: str, data: bytes) -> str:
        """Its generation."""
        generation: str = self._ask("POST", self._upload(key), data)["generation"]
        return generation

    def keep_versions(self) -> None:
        self._ask("PATCH", f"/storage/v1/b/{self.bucket}", {"versioning": {"enabled": True}})

    def _upload(self, key: str) -> str:
        name = quote(key, safe="")
        return f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}"

    def _ask(self, method: str, path: str, body: object) -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._http.request(method, path, data, {"Content-Type": "application/json"})
        response = self._http.getresponse()
        answer = response.read()
        assert response.status < 300, answer
        document: dict[str, Any] = json.loads(answer)
        return document


class AzureShelf(_Shelf):
    """A container of Azurite."""

    service = "azure"
    scheme = "az"

    def make(self) -> None:
        status, _, _ = ask_azure(self._http, "PUT", self.bucket, query={"restype": "container"})
        assert status == 201

    @property
    def settings(self) -> config.Store:
        return config.Store(
            url="az://",
            endpoint_url=f"http://{self.address}/{AZURE_ACCOUNT}",
            account=AZURE_ACCOUNT,
            secret=AZURE_KEY,
        )

    def put(self, key: str, data: bytes) -> str:
        headers = {"x-ms-blob-type": "BlockBlob"}
        path = f"{self.bucket}/{key}"
        status, found, answer = ask_azure(self._http, "PUT", path, data, headers=headers)
        assert status == 201, answer
        return found["ETag"].strip('"')


SHELVES: dict[str, type[GcsShelf] | type[AzureShelf]] = {"gcs": GcsShelf, "azure": AzureShelf}
