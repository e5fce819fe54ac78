"""What is wrong in the configuration is said at the start, as an error of usage."""

from pathlib import Path

import pytest

from penstock.config import Config, Kafka, Objects, load
from penstock.config.sections import Region, Window
from penstock.errors import EXIT_USAGE, Fatal
from penstock.pipeline.settings import Settings
from penstock.settings.inputs import check_inputs
from penstock.settings.worker import settings_for_call, settings_for_worker
from penstock.worker.rekey import kafka_of_rekeyer, rekey_terms


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "is no regular expression"),
        ("^([^/]+)/", r"needs the group \(\?P<stream>"),
    ],
)
def test_a_pattern_that_can_name_no_stream_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(Fatal, match=words) as caught:
        settings_for_worker(
            Config(kafka=Kafka(stream_from=pattern)),
            None,
            input_partitions=1,
            output_partitions=1,
            dead_letter_partitions=1,
        )
    assert caught.value.exit_code == EXIT_USAGE


SEVERAL = """
[model]
name = "rows"
[[models]]
name = "v2"
url = "http://other:8080"
served_as = "rows"
request = "float32"
token = "hush-hush"
[models.window]
max_rows = 7
[[routes]]
stream = "site-1/*"
model = "rows"
split = { v2 = 5 }
"""


def loaded(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load(file, {})


def test_what_is_allowed_of_a_store_that_is_not_there_is_refused() -> None:
    with pytest.raises(Fatal, match=r"names the store 'aws'.*one of objects before ://") as caught:
        settings_for_worker(
            Config(objects=Objects(allow=["b/", "aws://b/"])),
            None,
            input_partitions=1,
            output_partitions=1,
            dead_letter_partitions=1,
        )
    assert caught.value.exit_code == EXIT_USAGE


def test_each_of_several_models_has_its_own_terms(tmp_path: Path) -> None:
    cfg = loaded(tmp_path, SEVERAL)
    settings = settings_for_worker(
        cfg, None, {"v2": "3"}, input_partitions=1, output_partitions=1, dead_letter_partitions=1
    )
    assert settings.models["v2"].window.max_rows == 7
    assert settings.models["v2"].rows.form == "matrix"
    assert settings.main.window.max_rows == 512
    assert settings.labels.versions == {"v2": "3"}
    assert settings.routes is not None
    assert settings.routes.models == ("rows", "v2")
    served = cfg.with_each_model()["v2"].model
    assert (served.name, served.url) == ("rows", "http://other:8080")


def test_the_secrets_of_each_model_are_hidden(tmp_path: Path) -> None:
    cfg = loaded(tmp_path, SEVERAL + 'key = "*.csv"\n')
    assert "hush-hush" in cfg.secrets()
    assert "hush-hush" not in str(cfg.masked())
    assert "*.csv" in str(cfg.masked())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[[models]]\nname = "v2"\n', "two models are called 'v2'"),
        (
            '[[routes]]\nmodel = "v3"\n',
            r"neither \[model\] nor \[\[models\]\] has 'v3'; did you mean v2",
        ),
        ("[[routes]]\nmodel = []\n", "names one"),
        ('[[routes]]\nmodel = "v2"\nsplit = { rows = 60, v2 = 50 }\n', "110 percent"),
        ('[[routes]]\nmodel = ["v2", "rows"]\nsplit = { rows = 60 }\n', "names several"),
        (
            '[[models]]\nname="m79"\n[[models]]\nname="m2300"\n[[routes]]\nmodel=["m79","m2300"]\n',
            "one number",
        ),
        (
            '[[routes]]\nmodel=["v2","rows"]\n[output]\nobjects="s3://b/{key}.jsonl"\n',
            "put in {model} as a folder",
        ),
        (
            '[[routes]]\nmodle = "v2"\n',
            r"no key \[\[routes\]\] number 2: modle; did you mean model",
        ),
        ('[[models]]\nurl = "http://x"\n', "name"),
    ],
)
def test_models_and_routes_that_cannot_be_are_refused(
    tmp_path: Path, more: str, words: str
) -> None:
    with pytest.raises(Fatal, match=words) as caught:
        settings_for_worker(
            loaded(tmp_path, SEVERAL + more),
            None,
            input_partitions=1,
            output_partitions=1,
            dead_letter_partitions=1,
        )
    assert caught.value.exit_code == EXIT_USAGE


SHADOWED = """
[model]
name = "rows"
request = "float32"
[model.shadow]
model = "v2"
pointers = ["/label"]
[[models]]
name = "v2"
url = "http://other:8080"
served_as = "rows"
request = "float32"
max_in_flight = 2
[models.window]
max_rows = 7
"""


def for_one(cfg: Config) -> Settings:
    return settings_for_worker(
        cfg, None, input_partitions=1, output_partitions=1, dead_letter_partitions=1
    )


def test_a_shadow_is_asked_as_its_own_keys_say_and_answers_nobody(tmp_path: Path) -> None:
    cfg = loaded(tmp_path, SHADOWED)
    settings = for_one(cfg)
    assert settings.shadow is not None
    assert (settings.shadow.call_rows, settings.shadow.callers) == (7, 2)
    assert settings.shadow.topic.topic == "predictions.shadow"
    assert settings.shadow.agreement.same(b'{"label":1,"x":1}', b'{"label":1,"x":2}')
    assert not settings.models
    assert settings.routes is not None
    assert settings.routes.models == ("rows",)
    assert cfg.topics == ("refs", "predictions", "predictions.dlq", "predictions.shadow")


def test_a_shadow_that_a_route_names_does_both(tmp_path: Path) -> None:
    text = SHADOWED + '[[routes]]\nmodel = "rows"\nsplit = { v2 = 5 }\n'
    settings = for_one(loaded(tmp_path, text))
    assert settings.shadow is not None
    assert list(settings.models) == ["v2"]


def test_without_its_shadow_a_configuration_has_the_models_that_answer(tmp_path: Path) -> None:
    cfg = loaded(tmp_path, SHADOWED).without_shadow()
    assert for_one(cfg).shadow is None
    assert not cfg.models
    routed = loaded(tmp_path, SHADOWED + '[[routes]]\nmodel = "v2"\n').without_shadow()
    assert [model.name for model in routed.models] == ["v2"]


def test_a_shadow_may_be_set_by_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(SHADOWED)
    cfg = load(file, {"PENSTOCK_MODEL__SHADOW": '{"model": "v2", "percent": 1}'})
    assert cfg.model.shadow is not None
    assert cfg.model.shadow.percent == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('model = "v2"', 'model = "rows"', "is the model itself"),
        ('model = "v2"', 'model = "v3"', "no model 'v3' in .*; did you mean v2"),
        ('"/label"', '"label"', "no JSON pointer; write"),
        ('model = "v2"', 'model = "v2"\npercent = 101', "percent"),
        ('model = "v2"', "percent = 10", "model"),
        ('model = "v2"', 'model = "v2"\npercents = 1', "percents"),
        ("max_in_flight = 2", 'request = "json"', "takes other rows than rows"),
        ("[models.window]", '[models.shadow]\nmodel = "rows"\n[models.window]', "only .model."),
    ],
)
def test_a_shadow_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = SHADOWED.replace(old, new)
    if old == "max_in_flight = 2":
        text = text.replace('request = "float32"\nrequest', "request")
    with pytest.raises(Fatal, match=words) as caught:
        for_one(loaded(tmp_path, text))
    assert caught.value.exit_code == EXIT_USAGE


def test_all_but_the_rekeyer_read_what_it_has_written() -> None:
    several = Kafka(input_topics=["a", "b"], rekey="by-stream")
    cfg = Config(kafka=several)
    assert cfg.topics[:3] == ("a", "b", "by-stream")
    seen = cfg.after_rekey()
    assert seen.kafka.inputs == ["by-stream"]
    assert seen.kafka.isolation == "read_committed"
    assert seen.after_rekey() == seen
    assert Config().after_rekey() == Config()


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        (Kafka(rekey="refs"), "is an input, output or dead-letter topic"),
        (Kafka(rekey="predictions"), "is an input, output or dead-letter topic"),
        (Kafka(rekey="refs-2", input_pattern="refs.*"), "is an input"),
    ],
)
def test_a_topic_to_rekey_to_that_would_go_round_is_refused(kafka: Kafka, says: str) -> None:
    with pytest.raises(Fatal, match=says):
        check_inputs(Config(kafka=kafka))


def test_rekeying_does_not_know_regions() -> None:
    cfg = Config(region="eu", regions={"eu": Region()}, kafka=Kafka(rekey="by-stream"))
    with pytest.raises(Fatal, match="run penstock rekey for each region"):
        check_inputs(cfg)


def test_the_rekeyer_has_a_group_of_its_own_and_needs_its_topic() -> None:
    cfg = Config(kafka=Kafka(group="g", rekey="by-stream", client="confluent"))
    kafka = kafka_of_rekeyer(cfg)
    assert (kafka.group, kafka.client, kafka.inputs) == ("by-stream.rekey", "aiokafka", ["refs"])
    terms = rekey_terms(cfg, partitions=4, record_bytes=1_000)
    assert (terms.topic, terms.wait_s) == ("by-stream", 1.0)
    with pytest.raises(Fatal, match=r"kafka\.rekey .* is not set"):
        rekey_terms(Config(), partitions=4, record_bytes=1_000)


@pytest.mark.parametrize(("set_ms", "takes_s"), [(0, 0.03), (10, 0.03), (200, 0.2)])
def test_a_call_waits_longer_for_full_batches_than_a_worker(set_ms: int, takes_s: float) -> None:
    cfg = Config(window=Window(max_wait_ms=set_ms))
    assert settings_for_call(cfg, "rows", None, results=None).main.window.max_wait_s == takes_s
    assert for_one(cfg).main.window.max_wait_s == set_ms / 1000
