"""Files of authorities, and what libraries say of certificates they do not trust."""

from pathlib import Path

import pytest

from penstock import config
from penstock.adapters.http.certificates import trusting, untrusted
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.errors import EXIT_USAGE, Fatal


@pytest.mark.parametrize(
    "words",
    [
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer",
        "SSL_ERROR_SSL: error:1000007d: CERTIFICATE_VERIFY_FAILED: unable to get local issuer: OK",
        "error: Custom {\n kind: InvalidData,\n error: InvalidCertificate(\n UnknownIssuer,\n ),",
    ],
)
def test_a_certificate_that_is_not_trusted_is_a_setting_to_mend(words: str) -> None:
    failure = untrusted(words, "objects.ssl_cafile")
    assert failure is not None
    assert failure.exit_code == EXIT_USAGE
    assert "objects.ssl_cafile" in str(failure)


@pytest.mark.parametrize("words", ["connection refused", "[SSL] unexpected eof while reading"])
def test_a_server_that_is_away_is_none(words: str) -> None:
    assert untrusted(words, "objects.ssl_cafile") is None


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Fatal, match=r"model\.ssl_cafile = .*ca\.pem") as caught:
        trusting(str(path), "model.ssl_cafile")
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("client", [ObstoreObjects, S3fsObjects])
def test_each_client_of_the_store_tells_at_once(
    tmp_path: Path, client: type[ObstoreObjects] | type[S3fsObjects]
) -> None:
    settings = config.Objects(
        endpoint_url="https://127.0.0.1:1",
        key="k",
        secret="s",
        ssl_cafile=str(tmp_path / "missing.pem"),
    )
    with pytest.raises(Fatal, match=r"objects\.ssl_cafile"):
        client(settings)
    with pytest.raises(Fatal, match=r"objects\.ssl_cafile"):
        DirectObjects(ObstoreObjects(config.Objects(anon=True)), settings)
