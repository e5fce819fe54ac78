"""One configuration for all regions: what it means for the workers of each."""

from pathlib import Path

import pytest

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal
from penstock.settings.worker import settings_for_worker

TEXT = """
[objects]
endpoint_url = "http://eu:9000"

[stores.us]
url = "s3://"
endpoint_url = "http://us:9000"

[regions]
fallback = ["eu", "us"]

[regions.eu]
topics = ["refs.eu"]
stores = ["objects"]
models = ["http://eu:8080"]

[regions.us]
topics = ["refs.us", "more.us"]
stores = ["us"]
models = ["http://us:8080", "http://us:8081"]
help_lag = 7
"""


def resolved(tmp_path: Path, region: str | None, **environ: str) -> config.Resolved:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    if region is not None:
        environ["PENSTOCK_REGION"] = region
    return config.resolve(path, environ)


def settings_of(cfg: config.Config) -> object:
    return settings_for_worker(
        cfg, None, input_partitions=1, output_partitions=1, dead_letter_partitions=1
    )


def test_a_worker_reads_its_own_topics_in_a_group_of_its_region(tmp_path: Path) -> None:
    eu = resolved(tmp_path, "eu").config.kafka
    us = resolved(tmp_path, "us").config.kafka
    assert (eu.inputs, eu.group) == (["refs.eu"], "penstock-eu")
    assert (us.inputs, us.group) == (["refs.us", "more.us"], "penstock-us")


def test_a_worker_that_helps_another_region_joins_the_group_of_that_region(tmp_path: Path) -> None:
    eu, us = (resolved(tmp_path, region).config for region in ("eu", "us"))
    assert config.kafka_of(eu, "us") == us.kafka
    assert config.kafka_of(us, "eu") == eu.kafka


def test_model_servers_of_the_region_come_first_and_then_those_of_others(tmp_path: Path) -> None:
    model = resolved(tmp_path, "us").config.model
    assert model.url == "http://us:8080"
    assert model.replicas == ["http://us:8081", "http://eu:8080"]


def test_a_key_for_all_regions_can_be_overridden_for_one(tmp_path: Path) -> None:
    cfg = resolved(tmp_path, "eu", PENSTOCK_REGIONS__HELP_LAG="5").config
    assert {name: region.help_lag for name, region in cfg.regions.items()} == {"eu": 5, "us": 7}
    assert {name: region.fallback for name, region in cfg.regions.items()} == {
        "eu": ["us"],
        "us": ["eu"],
    }


def test_the_source_of_a_key_that_a_region_sets_is_the_region(tmp_path: Path) -> None:
    settings = resolved(tmp_path, "eu")
    assert settings.sources["kafka.group"] == settings.sources["model.url"] == "regions.eu"
    assert settings.sources[".region"] == "PENSTOCK_REGION"


def test_references_of_a_region_are_looked_for_in_its_own_store_first(tmp_path: Path) -> None:
    settings = settings_for_worker(
        resolved(tmp_path, "eu").config,
        None,
        input_partitions=1,
        output_partitions=1,
        dead_letter_partitions=1,
    )
    assert settings.intake.places.of(None, "b", "k") == "objects"
    assert settings.intake.places.of("us", "b", "k") == "us", "a reference may say otherwise"
    assert settings.intake.near["refs.us"].of(None, "b", "k") == "us"
    assert settings.helping["us"].lag == 7


@pytest.mark.parametrize(
    "kafka", ['input_topic = "refs.us"', 'input_pattern = "refs[.].*"'], ids=["topic", "pattern"]
)
def test_what_a_worker_reads_is_not_a_topic_of_a_region_that_it_helps(
    tmp_path: Path, kafka: str
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(
        f'region = "eu"\n[kafka]\n{kafka}\n[regions.eu]\nfallback = ["us"]\n'
        '[regions.us]\ntopics = ["refs.us"]\n'
    )
    with pytest.raises(Fatal, match=r"refs\.us is that of regions\.us, and is read here, too"):
        config.resolve(path, {})


def test_a_topic_may_be_called_as_another_region_s_store_is(tmp_path: Path) -> None:
    names = {"PENSTOCK_REGIONS__EU__TOPICS": "us", "PENSTOCK_REGIONS__US__STORES": "us"}
    assert resolved(tmp_path, "eu", **names).config.kafka.inputs == ["us"]


def test_a_worker_is_in_one_of_the_regions(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="set region, one of eu, us"):
        settings_of(resolved(tmp_path, None).config)
    with pytest.raises(Fatal, match=r"no \[regions.as\]"):
        resolved(tmp_path, "as")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("EU__FALLBACK", "ap", "no other region ap"),
        ("EU__STORES", "ue", "no store ue; did you mean us"),
        ("US__TOPICS", "refs.eu", "refs.eu is that of regions.eu already"),
        ("US__TOPICS", "", "regions.us.topics: eu helps there"),
        ("EU__MODELS", "eu:8080", "has no scheme"),
        ("FALBACK", "us", "did you mean fallback"),
    ],
)
def test_regions_that_do_not_fit_together_are_refused(
    tmp_path: Path, name: str, value: str, words: str
) -> None:
    with pytest.raises(Fatal, match=words) as caught:
        resolved(tmp_path, "eu", **{f"PENSTOCK_REGIONS__{name}": value})
    assert caught.value.exit_code == EXIT_USAGE
