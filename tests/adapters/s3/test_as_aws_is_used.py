"""Profiles of AWS and names in the place of buckets: what botocore itself, or AWS's command line,
makes of them is the right answer.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config as BotoConfig
from botocore.session import Session
from msgspec.structs import replace

from penstock import config
from penstock.adapters.result_stores.results import open_results
from penstock.adapters.s3.buckets import address_of, as_profile_says
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.choice import open_objects
from penstock.errors import Fatal, Poison
from penstock.messages.urls import split_url
from penstock.ports import Location
from tests.adapters.stores.contract import read
from tests.adapters.stores.s3_stub import Refusal, S3Stub

AP = "arn:aws:s3:eu-west-1:123456789012:accesspoint"
ARNS = [
    f"{AP}/my-ap",
    f"{AP}:my-ap",
    "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint/my-ap",
    "arn:aws-us-gov:s3:us-gov-west-1:123456789012:accesspoint/my-ap",
    "arn:aws:s3-object-lambda:eu-west-1:123456789012:accesspoint/my-ap",
    "arn:aws:s3-outposts:eu-west-1:123456789012:outpost/op-01234567890123456/accesspoint/my-ap",
    "arn:aws:s3-outposts:eu-west-1:123456789012:outpost:op-01234567890123456:accesspoint:my-ap",
    "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap",
]
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE")


@pytest.fixture(autouse=True)
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of the file that AWS's clients read."""
    for name in KEYS + REGIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=a\naws_secret_access_key=b\n"
    )
    return tmp_path / "config"


PROCESS = """echo '{"Version":1,"AccessKeyId":"of-process","SecretAccessKey":"b"}'"""


def written(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.mark.parametrize("key", ["a.csv", "dir/a.csv", "dir//a.csv", "arn:aws:s3/x"])
@pytest.mark.parametrize("arn", ARNS)
def test_the_key_begins_behind_the_access_point(arn: str, key: str) -> None:
    for scheme in ("s3", "S3", "s3a", "s3n"):
        assert split_url(f"{scheme}://{arn}/{key}") == (None, arn, key)


@pytest.mark.parametrize(
    "bucket", ["arn:aws:s3", "arn:aws:s3:::cams", "my-ap-abc-s3alias", "b--use1-az4--x-s3"]
)
def test_other_names_end_at_the_first_slash(bucket: str) -> None:
    assert split_url(f"s3://{bucket}/accesspoint/x") == (None, bucket, "accesspoint/x")


class Sent(Exception):
    """Raised instead of sending a request."""


def _stop(request: Any, **_: Any) -> None:
    raise Sent(request.url)


async def url_of(client: Any, bucket: str) -> str:
    """The address of a GET by botocore or aiobotocore, which is not sent."""
    client.meta.events.register("before-send.s3", _stop)
    try:
        found = client.get_object(Bucket=bucket, Key="dir/a.csv")
        if inspect.isawaitable(found):
            await found
    except Sent as sent:
        return str(sent)
    raise AssertionError("nothing was sent")


@pytest.mark.parametrize("arn", [arn for arn in ARNS if ".mrap" not in arn])
async def test_an_access_point_is_asked_at_the_address_that_botocore_gives_it(
    profile: Path, arn: str
) -> None:
    region = arn.split(":")[3]
    files = S3fsObjects(as_profile_says(config.Objects(region=region), "objects"))
    here = await url_of(await files.client(), arn)
    assert here == await url_of(Session().create_client("s3", region_name=region), arn)
    assert here.startswith("https://my-ap-123456789012.")
    assert here.endswith("/dir/a.csv")
    await files.aclose()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000", "http://minio:9000", "http://[::1]:9"])
async def test_an_access_point_of_a_store_without_subdomains_is_refused(url: str) -> None:
    settings = config.Objects(endpoint_url=url, region="eu-west-1", key="k", secret="s")
    files = S3fsObjects(settings)
    with pytest.raises(Poison, match="has no access points"):
        await files.open(Location(ARNS[0], "dir/a.csv"))
    await files.aclose()


PROFILES: list[tuple[str, dict[str, Any]]] = [
    ("use_dualstack_endpoint = true", {"use_dualstack_endpoint": True}),
    ("s3 =\n  use_dualstack_endpoint = true", {"use_dualstack_endpoint": True}),
    ("use_fips_endpoint = true", {"use_fips_endpoint": True}),
    (
        "use_fips_endpoint = true\nuse_dualstack_endpoint = true",
        {"use_fips_endpoint": True, "use_dualstack_endpoint": True},
    ),
    (
        "s3 =\n  use_accelerate_endpoint = true",
        {"s3": {"use_accelerate_endpoint": True}},
    ),
    (
        "s3 =\n  use_accelerate_endpoint = true\n  use_dualstack_endpoint = true",
        {"s3": {"use_accelerate_endpoint": True}, "use_dualstack_endpoint": True},
    ),
    ("s3 =\n  addressing_style = path", {"s3": {"addressing_style": "path"}}),
    ("s3 =\n  addressing_style = virtual", {"s3": {"addressing_style": "virtual"}}),
    ("endpoint_url = http://store:9000", {}),
    ("services = here\n[services here]\ns3 =\n  endpoint_url = http://store:9000", {}),
    (
        (
            "endpoint_url = http://all:1\nservices = here\n[services here]\n"
            "s3 =\n  endpoint_url = https://store"
        ),
        {},
    ),
    ("endpoint_url = http://store:9000\nignore_configured_endpoint_urls = true", {}),
]


@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-west-1"])
@pytest.mark.parametrize(("words", "options"), PROFILES)
async def test_what_a_profile_says_leads_each_client_to_where_botocore_goes(
    profile: Path, words: str, options: dict[str, Any], region: str
) -> None:
    written(profile, f"[default]\nregion = {region}\n{words}\n")
    at_store = "endpoint_url" in words and "ignore" not in words
    style = {"s3": {"addressing_style": "path"}} if at_store else {}
    botocore = Session().create_client("s3", config=BotoConfig(**(options | style)))
    there = await url_of(botocore, "cams")
    settings = as_profile_says(config.Objects(), "objects")
    host_url, path = address_of(settings, settings.region or "", "cams")
    assert f"{host_url}{path}/dir/a.csv" == there
    files = S3fsObjects(settings)
    assert await url_of(await files.client(), "cams") == there
    await files.aclose()


def test_settings_and_the_environment_come_before_the_profile(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.write_text(
        "[default]\nregion = eu-west-1\nendpoint_url = http://store:9000\nca_bundle = /of/profile\n"
        "s3 =\n  addressing_style = path\n[profile other]\nregion = eu-west-3\n"
    )
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    mine = config.Objects(endpoint_url="http://mine", addressing="virtual", ssl_cafile="/mine")
    settings = as_profile_says(mine, "objects")
    assert settings == replace(mine, region="eu-west-2")
    assert as_profile_says(config.Objects(), "objects").ssl_cafile == "/of/profile"
    monkeypatch.delenv("AWS_REGION")
    other = as_profile_says(config.Objects(profile="other"), "objects")
    assert (other.region, other.endpoint_url) == ("eu-west-3", None)


def test_a_profile_that_is_wrong_is_told(profile: Path) -> None:
    profile.write_text("[default]\nendpoint_url = store:9000\n")
    with pytest.raises(Fatal, match="endpoint_url = 'store:9000' is not of the form"):
        as_profile_says(config.Objects(), "objects")
    with pytest.raises(Fatal, match="nobody"):
        as_profile_says(config.Objects(profile="nobody"), "objects")


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
async def test_an_object_is_read_where_the_profile_says_with_its_own_process_of_credentials(
    profile: Path, client: Any
) -> None:
    script = profile.with_name("keys")
    written(script, PROCESS)
    async with S3Stub({"a.csv": b"1,2\n"}) as stub:
        written(profile.with_name("credentials"), "")
        written(
            profile,
            f"[profile mine]\nregion = eu-west-1\nendpoint_url = {stub.url}\n"
            f"credential_process = sh {script}\n",
        )
        cfg = config.Config(objects=config.Objects(profile="mine", client=client))
        objects = open_objects(cfg)
        assert await read(objects, Location("cams", "a.csv")) == b"1,2\n"
        await objects.aclose()
        assert "Credential=of-process/" in stub.seen[0].headers["Authorization"]


async def test_an_access_point_of_several_regions_names_the_package_that_signs_for_it(
    profile: Path,
) -> None:
    objects = open_objects(config.Config(objects=config.Objects(region="eu-west-1")))
    with pytest.raises(Poison, match="pip install awscrt"):
        await objects.open(Location(ARNS[-1], "a.csv"))
    await objects.aclose()


@pytest.mark.parametrize("bucket", [f"{AP}/my-ap", "b--use1-az4--x-s3"])
def test_results_are_not_written_to_what_is_no_plain_bucket(bucket: str) -> None:
    cfg = config.Config(objects=config.Objects(region="eu-west-1"))
    with pytest.raises(Fatal, match="no plain bucket"):
        open_results(cfg, f"s3://{bucket}/{{key}}.jsonl")


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
async def test_an_object_with_a_key_of_its_own_is_told_as_that(client: Any) -> None:
    """The code with which S3 and MinIO refuse a GET of an object under SSE-C."""
    async with S3Stub({"a.csv": b"1\n"}) as stub:
        settings = config.Objects(endpoint_url=stub.url, region="us-east-1", client=client)
        objects = open_objects(config.Config(objects=settings))
        stub.next.extend([Refusal(400, "InvalidRequest")] * 2)
        with pytest.raises(Poison, match="SSE-C") as caught:
            await objects.open(Location("cams", "a.csv"))
        assert caught.value.code == "forbidden"
        await objects.aclose()
