"""What is wrong in the configuration is said at the start, as an error of usage."""

from pathlib import Path

import pytest

from consumers.config import Config, Kafka, load
from consumers.errors import EXIT_USAGE, Fatal
from consumers.settings import for_worker


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "is no regular expression"),
        ("^([^/]+)/", r"needs the group \(\?P<stream>"),
    ],
)
def test_a_pattern_that_can_name_no_stream_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(Fatal, match=said) as caught:
        for_worker(
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


def test_each_of_several_models_has_its_own_terms(tmp_path: Path) -> None:
    cfg = loaded(tmp_path, SEVERAL)
    settings = for_worker(
        cfg, None, {"v2": "3"}, input_partitions=1, output_partitions=1, dead_letter_partitions=1
    )
    assert settings.models["v2"].window.max_rows == 7
    assert settings.models["v2"].rows.form == "matrix"
    assert settings.window.max_rows == 512
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
    ("more", "said"),
    [
        ('[[models]]\nname = "v2"\n', "two models are called 'v2'"),
        ('[[routes]]\nmodel = "v3"\n', "no model 'v3'; did you mean v2"),
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
def test_models_and_routes_that_cannot_be_are_refused(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(Fatal, match=said) as caught:
        for_worker(
            loaded(tmp_path, SEVERAL + more),
            None,
            input_partitions=1,
            output_partitions=1,
            dead_letter_partitions=1,
        )
    assert caught.value.exit_code == EXIT_USAGE
