"""Which model a URL, a protocol or a name means, and what is said of those that mean none."""

from pathlib import Path

import pytest

from penstock.config import Config, Model
from penstock.config.model_sections import NamedModel
from penstock.errors import EXIT_USAGE, Fatal
from penstock.library.model_and_shard import chosen, configured, with_model
from penstock.tools.replay.worker_settings import ReplayOptions, plan

SETTINGS = Config(
    model=Model(url="http://old:8080", replicas=["http://other"], management_url="http://old:1"),
    models=[NamedModel(name="v2", url="http://two:1", served_as="rows", protocol="oip")],
)


@pytest.mark.parametrize(
    ("protocol", "url", "server", "name", "version"),
    [
        ("torchserve", "http://h:1/predictions/m", "http://h:1", "m", None),
        ("torchserve", "https://h/predictions/m%20n/2", "https://h", "m n", "2"),
        ("http", "http://h:1", "http://h:1", "rows", None),
        ("http", "http://h:1/v3/score?x=1", "http://h:1/v3/score?x=1", "rows", None),
        ("oip", "http://h:1", "http://h:1", "rows", None),
        ("oip", "http://h:1/v2/models/m", "http://h:1", "m", None),
        ("oip", "http://h/proxy/v2/models/m/versions/3/infer", "http://h/proxy", "m", "3"),
        ("oip-grpc", "grpc://h:1", "grpc://h:1", "rows", None),
        ("oip-grpc", "grpcs://h:1/v2/models/m", "grpcs://h:1", "m", None),
        ("openai-embeddings", "http://h:1/v1/embeddings", "http://h:1/v1", "rows", None),
        ("openai-chat", "http://h:1/v1/chat/completions", "http://h:1/v1", "rows", None),
    ],
)
def test_a_url_means_what_its_protocol_says_for_a_call_and_for_a_replay(
    protocol: str, url: str, server: str, name: str, version: str | None
) -> None:
    cfg, in_records = chosen(SETTINGS, url, protocol)
    options = ReplayOptions("to", "1d", 1, model=url, protocol=protocol)
    replayed = plan(SETTINGS, options)
    for model in (cfg.model, replayed.cfg.model):
        assert (model.url, model.name, model.version) == (server, name, version)
        assert model.protocol == protocol
        assert (model.replicas, model.management_url) == (None, None)
    assert in_records == replayed.model == name


def test_a_path_is_the_whole_of_it_and_none_of_a_preset_s_is_put_behind() -> None:
    preset = Config(model=Model(protocol="http", preset="litserve"))
    assert with_model(preset, "http://h:1").model.path is None
    assert with_model(preset, "http://h:1/mine").model.path == ""


@pytest.mark.parametrize(
    ("protocol", "url", "words"),
    [
        (None, "http://h:9102", "protocol = 'torchserve'"),
        (None, "http://h:9102/mean", "'http' takes any URL"),
        ("oip", "http://h/v2/m", "http://host:port/v2/models/NAME"),
        ("oip-grpc", "http://h:1", "write grpc://host:port or"),
        ("oip-grpc", "grpc://h:1/m", "grpc://host:port/v2/models/NAME"),
        ("http", "grpc://h:1", "protocol = 'http'"),
        ("htp", "http://h:1", "did you mean http?"),
        ("triton", "http://h:1", "openai-chat; its servers speak oip"),
        ("tf-serving", "http://h:1", "; set it to http, and model.preset to tf-serving"),
        (None, "http://h:1/v2/models/m", "this looks like oip"),
    ],
)
def test_a_url_that_does_not_fit_is_told_with_its_protocol(
    protocol: str | None, url: str, words: str
) -> None:
    for choose in (
        lambda: chosen(SETTINGS, url, protocol),
        lambda: plan(SETTINGS, ReplayOptions("to", "1d", 1, model=url, protocol=protocol)),
    ):
        with pytest.raises(Fatal) as caught:
            choose()
        assert caught.value.exit_code == EXIT_USAGE
        assert words in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 2


def test_a_configured_model_is_taken_by_its_name_and_may_speak_another_protocol() -> None:
    cfg, name = chosen(SETTINGS, "v2", "oip", "float32", ["ts"])
    assert (name, cfg.model.name, cfg.model.url) == ("v2", "rows", "http://two:1")
    assert (cfg.model.request, cfg.rows.keep) == ("float32", ["ts"])
    assert plan(SETTINGS, ReplayOptions("to", "1d", 1, model="v2")).cfg.model.protocol == "oip"
    with pytest.raises(Fatal, match="--protocol says what the server of --model speaks"):
        plan(SETTINGS, ReplayOptions("to", "1d", 1, protocol="http"))


def test_a_configuration_is_a_file_or_the_tables_that_would_stand_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[model]\nurl = "http://a"\n[stores.eu]\nurl = "s3://eu"\n')
    tables = {"model": {"url": "http://a"}, "stores": {"eu": {"url": "s3://eu"}}}
    assert configured(file) == configured(str(file)) == configured(tables)
    assert configured(tables).stores["eu"].url == "s3://eu"
    monkeypatch.setenv("PENSTOCK_MODEL__URL", "http://b")
    assert configured(tables).model.url == "http://b"
    assert tables["model"] == {"url": "http://a"}, "the caller's own is not changed"
    assert configured(SETTINGS) is SETTINGS


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"model": {"protcol": "http"}}, "config: no key model.protcol; did you mean protocol?"),
        ({"modle": {}}, "config: no section [modle]; did you mean model?"),
        ({"model": {"timeout_ms": "soon"}}, "config: model.timeout_ms: Expected `int`, got `str`"),
        ({"model": {"url": "h:1"}}, "config: model.url = 'h:1' has no scheme"),
    ],
)
def test_what_is_wrong_in_a_dictionary_is_told_by_key(
    tables: dict[str, dict[str, object]], words: str
) -> None:
    with pytest.raises(Fatal) as caught:
        configured(tables)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(Fatal, match=r"configuration file no\.toml: No such file"):
        configured("no.toml")
