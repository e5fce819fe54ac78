"""The variables by which the demo's worker gets its settings."""

from penstock import config
from penstock.tools.demo.services import as_environment

SECTIONS = [
    config.Kafka(bootstrap_servers="127.0.0.1:1", group="g"),
    config.Objects(endpoint_url="file:///tmp/x", allow=["sensors"], pin=False),
    config.Model(url="http://127.0.0.1:2"),
    config.Output(),
    config.Http(port=3),
]


def test_sections_survive_the_way_through_the_environment() -> None:
    read = config.load(environ=as_environment(SECTIONS))
    assert [read.kafka, read.objects, read.model, read.output, read.http] == SECTIONS


def test_every_key_of_a_section_is_set_so_that_the_users_settings_do_not_count() -> None:
    users = {"PENSTOCK_KAFKA__SECURITY_PROTOCOL": "SSL", "PENSTOCK_OBJECTS__KEY": "k"}
    read = config.load(environ=users | as_environment(SECTIONS))
    assert (read.kafka.security_protocol, read.objects.key) == ("PLAINTEXT", None)


def test_other_sections_keep_the_users_settings() -> None:
    users = {"PENSTOCK_WINDOW__MAX_WAIT_MS": "50"}
    assert config.load(environ=users | as_environment(SECTIONS)).window.max_wait_ms == 50
