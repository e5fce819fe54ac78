"""What a replay changes of the live worker's configuration, and what it refuses to write to."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock import config
from penstock.config.model_sections import NamedModel
from penstock.errors import Fatal
from penstock.tools.replay.worker_settings import Plan, ReplayOptions, plan

LIVE = config.Config(
    models=[NamedModel(name="rows-v2", served_as="rows2", url="http://v2:8080")],
    routes=[config.Route(model="rows-v2", stream="a")],
)


def planned(live: config.Config = LIVE, **options: Any) -> Plan:
    return plan(live, replace(ReplayOptions("v2", "1h", 5), **options))


def changed(section: str, **keys: Any) -> config.Config:
    one = msgspec.structs.replace(getattr(LIVE, section), **keys)
    return msgspec.structs.replace(LIVE, **{section: one})


@pytest.mark.parametrize(
    ("live", "to"),
    [
        (LIVE, "refs"),
        (LIVE, "predictions"),
        (LIVE, "predictions.dlq"),
        (LIVE, "predictions.shadow"),
        (LIVE, "scenes"),
        (LIVE, "scenes.late"),
        (changed("scenes", input_topic="v2"), "v2"),
        (changed("output", dlq_topic="v2.dlq"), "v2"),
        (changed("kafka", input_topics=["a", "v2"]), "v2"),
        (changed("kafka", input_pattern="v.*"), "v2"),
    ],
)
def test_a_topic_in_use_is_no_place_for_a_replay(live: config.Config, to: str) -> None:
    with pytest.raises(Fatal, match=f"--to {to}"):
        planned(live, to=to)


def test_it_is_a_group_of_its_own_whose_letters_go_beside_its_answers() -> None:
    live = changed("output", dlq_topic="letters", objects="s3://b/{key}.jsonl", records="objects")
    cfg = planned(live, name="friday").cfg
    assert cfg.kafka.group == "penstock.replay.friday"
    assert (cfg.output.topic, cfg.output.dead_letter_topic) == ("v2", "v2.dlq")
    assert (cfg.output.objects, cfg.output.records) == (None, "rows")


def test_without_a_model_all_answer_as_before() -> None:
    cfg = planned().cfg
    assert [model.name for model in cfg.models] == ["rows-v2"]
    assert cfg.routes == LIVE.routes


@pytest.mark.parametrize(
    ("name", "url", "served_as"),
    [
        ("rows", "http://localhost:8080", "rows"),
        ("rows-v2", "http://v2:8080", "rows2"),
        ("rows-v3", "http://localhost:8080", "rows-v3"),
    ],
)
def test_a_model_is_one_of_the_configured_or_what_the_server_calls_so(
    name: str, url: str, served_as: str
) -> None:
    found = planned(model=name)
    assert (found.cfg.model.url, found.cfg.model.name, found.model) == (url, served_as, name)
    assert (found.cfg.models, found.cfg.routes) == ([], [])


def test_a_model_may_be_a_url() -> None:
    found = planned(model="http://v4:8080/predictions/rows-v4")
    assert (found.cfg.model.url, found.model) == ("http://v4:8080", "rows-v4")


def test_it_takes_less_at_a_time_and_batches_stay_as_large() -> None:
    live = changed("limits", buffer_bytes=1 << 30)
    cfg = planned(live).cfg
    assert cfg.limits.buffer_bytes < live.limits.buffer_bytes
    assert cfg.objects.begin_fetches is None
    assert cfg.objects.most_fetches < live.objects.most_fetches
    assert cfg.model.begin_calls is None
    assert cfg.model.most_calls < live.model.most_calls
    assert cfg.window.max_rows == live.window.max_rows


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(Fatal, match="--until"):
        planned(until="2h", until_ms=4)


def test_a_pattern_of_inputs_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Fatal, match="input_pattern"):
        planned(changed("kafka", input_pattern="("))


def test_of_then_only_the_wanted_streams_and_model_are_compared() -> None:
    found = planned(streams=("site-1/*",), against="rows")
    assert found.takes_of_then("site-1/a", "rows")
    assert not found.takes_of_then("site-2/a", "rows")
    assert not found.takes_of_then("site-1/a", "rows-v2")
