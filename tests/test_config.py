"""The configuration: what a variable may say, where each value comes from, and what is refused."""

import json
import logging
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import Struct

from penstock.commands.root import cli
from penstock.commands.run import say_start
from penstock.config import MASK, load, resolve
from penstock.config.all_sections import NAMED, SECTIONS, TABLES
from penstock.config.marks import Secret, marks, nested
from penstock.config.secrets import mask, secrets
from penstock.config.sections import Section
from penstock.errors import EXIT_USAGE, Fatal


def refused(environ: Mapping[str, str], path: Path | None = None) -> str:
    with pytest.raises(Fatal) as caught:
        load(path, environ)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text", ["a/**,b", " a/** , b ", '["a/**","b"]', ' [ "a/**", "b" ] ', '["a/**",\n"b"]']
)
def test_a_list_is_written_with_commas_or_as_json(text: str) -> None:
    assert load(environ={"PENSTOCK_OBJECTS__ALLOW": text}).objects.allow == ["a/**", "b"]


def test_a_list_of_columns_may_hold_numbers() -> None:
    for text in ("x,3", '["x", 3]'):
        assert load(environ={"PENSTOCK_ROWS__COLUMNS": text}).rows.columns == ["x", 3]


@pytest.mark.parametrize(
    "text", ['["a/**"', "['a/**']", '{"a": 1}', '"a/**"', "[1]", '["a", null]', "a,'b'", "[ab]*"]
)
def test_a_text_that_is_no_list_is_refused_and_never_taken_literally(text: str) -> None:
    message = refused({"PENSTOCK_OBJECTS__ALLOW": text})
    assert "PENSTOCK_OBJECTS__ALLOW" in message
    assert "write a list as a,b or as a JSON array" in message


def test_json_where_one_text_is_wanted_is_refused() -> None:
    message = refused({"PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": '["a:9092", "b:9092"]'})
    assert "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS" in message
    assert load(environ={"PENSTOCK_MODEL__CANARY": "[1, 2]"}).model.canary == "[1, 2]"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PENSTOCK_KAFKA_INPUT_TOPIC", "PENSTOCK_KAFKA__INPUT_TOPIC"),
        ("PENSTOCK_HTTP_PORT", "PENSTOCK_HTTP__PORT"),
        ("PENSTOCK_MAX_ROWS", "PENSTOCK_WINDOW__MAX_ROWS"),
        ("PENSTOCK_KAFKA__TOPIC", "input_topic"),
        ("PENSTOCK_KAFAK__GROUP", "kafka"),
    ],
)
def test_a_variable_that_is_no_key_is_an_error_that_names_the_nearest(
    name: str, meant: str
) -> None:
    message = refused({name: "1"})
    assert message.startswith(f"environment variable {name}")
    assert f"did you mean {meant}?" in message


def test_variables_that_are_not_ours_to_read_are_passed_over() -> None:
    load(
        environ={
            "PENSTOCK_STACK_BUCKET": "penstock",
            "PENSTOCK_STACK_KAFKA_PORT": "9092",
            "PENSTOCK_HTTP_FD": "3",
            "PENSTOCK_REQUIRE_STACK": "1",
            # What Kubernetes sets beside Services named `penstock` and `penstock-worker`.
            "PENSTOCK_SERVICE_HOST": "10.0.0.1",
            "PENSTOCK_SERVICE_PORT_HTTP": "8900",
            "PENSTOCK_PORT": "tcp://10.0.0.1:8900",
            "PENSTOCK_PORT_8900_TCP_ADDR": "10.0.0.1",
            "PENSTOCK_WORKER_PORT": "tcp://10.0.0.1:8900",
            "PENSTOCK_WORKER_PORT_8900_TCP": "tcp://10.0.0.1:8900",
        }
    )


def test_a_value_of_the_wrong_kind_is_an_error_that_names_variable_and_allowed_values(
    tmp_path: Path,
) -> None:
    assert "PENSTOCK_WINDOW__MAX_ROWS" in refused({"PENSTOCK_WINDOW__MAX_ROWS": "many"})
    message = refused({"PENSTOCK_DELIVERY__GUARANTEE": "once"})
    assert "PENSTOCK_DELIVERY__GUARANTEE" in message
    assert "at_least_once, exactly_once" in message
    file = tmp_path / "worker.toml"
    file.write_text('[window]\nmax_rows = "many"\n')
    message = refused({}, file)
    assert str(file) in message
    assert "window.max_rows" in message


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file; the environment overrides some of its keys."""
    path = tmp_path / "worker.toml"
    path.write_text('[kafka]\ngroup = "file"\ninput_topic = "same"\n[window]\nmax_rows = 7\n')
    monkeypatch.setenv("PENSTOCK_KAFKA__GROUP", "environment")
    monkeypatch.setenv("PENSTOCK_KAFKA__INPUT_TOPIC", "same")
    monkeypatch.setenv("PENSTOCK_OBJECTS__SECRET", "not-to-be-shown")
    return path


def test_each_value_knows_where_it_comes_from(file: Path) -> None:
    resolved = resolve(file)
    assert resolved.config.kafka.group == "environment"
    assert resolved.sources == {
        "kafka.group": "PENSTOCK_KAFKA__GROUP",
        "kafka.input_topic": "PENSTOCK_KAFKA__INPUT_TOPIC",
        "window.max_rows": str(file),
        "objects.secret": "PENSTOCK_OBJECTS__SECRET",
    }
    assert resolved.overridden == {"kafka.group": "PENSTOCK_KAFKA__GROUP"}


def test_penstock_config_shows_where_each_value_comes_from(file: Path) -> None:
    shown = CliRunner().invoke(cli, ["config", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    printed = json.loads(shown.stdout)
    assert printed["window"]["max_rows"] == 7
    assert printed["sources"]["window.max_rows"] == str(file)
    assert printed["sources"]["kafka.group"] == "PENSTOCK_KAFKA__GROUP"
    assert printed["sources"]["window.max_wait_ms"] == "default"
    assert "not-to-be-shown" not in shown.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[kafka]\nstream_from = "("\n', "kafka.stream_from = '(' is no regular expression"),
        (
            '[kafka]\ntime_from = "[0-9]+"\n',
            r"kafka.time_from = '[0-9]+' needs the group (?P<time>",
        ),
        ('[kafka]\ninput_pattern = "["\n', "kafka.input_pattern = '[' is no regular expression"),
        ('[rows]\nimage_scale = "0-255"\n', "rows.image_scale = '0-255' is not known; write none"),
        ('[scenes]\nsite = "("\n', "scenes.site = '(' is no regular expression"),
        ('[scenes]\nsite = "x"\n', "needs the groups (?P<site>...) and (?P<member>...)"),
        (
            '[scenes]\nanchor = "first"\n',
            "scenes.anchor = 'first' is unknown; write rhythm, grid, smallest or leader:MEMBER",
        ),
        ('[output]\nobjects = "/out/{key}.csv"\n', "file:///folder/{key}.csv"),
        ('[[routes]]\nmodel = "v2"\n', "neither [model] nor [[models]] has 'v2'"),
        ('[model]\nprotocol = "http"\ntemplate = "{row}"\n', "{rows}"),
        (
            '[model]\npreset = "litserve"\n',
            "model.preset is for model.protocol = 'http', but that of 'rows' is 'torchserve'",
        ),
        (
            '[[models]]\nname = "v2"\ninputs = ["x:FP32:16"]\n',
            "model.inputs is for model.protocol = 'oip', but that of 'v2' is 'torchserve'",
        ),
        ('[model]\nprotocol = "oip"\nrequest = "raw"\n', "does not go with model.protocol"),
    ],
)
def test_config_shows_and_then_refuses_what_a_worker_would_refuse(
    tmp_path: Path, text: str, words: str
) -> None:
    file = written(tmp_path, text)
    shown = CliRunner().invoke(cli, ["config", "--config", str(file)])
    assert '"sources"' in shown.stdout
    assert shown.exit_code != 0
    assert words in shown.stderr + str(shown.exception)


@pytest.mark.parametrize("command", ["config", "run"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[kafka]\nssl_cafile = "/nowhere"\n', "kafka.ssl_cafile = '/nowhere'"),
        ('[kafka]\nssl_certfile = "/nowhere"\n', "kafka.ssl_certfile = '/nowhere'"),
        ('[kafka]\nssl_keyfile = "/nowhere"\n', "kafka.ssl_keyfile = '/nowhere'"),
        ('[objects]\nssl_cafile = "/nowhere"\n', "objects.ssl_cafile = '/nowhere'"),
        ('[model]\ntoken_file = "/nowhere"\n', "model.token_file = '/nowhere'"),
        (
            '[[models]]\nname = "new"\nssl_cafile = "/nowhere"\n',
            "[[models]] 'new': ssl_cafile = '/nowhere'",
        ),
        (
            '[stores.old]\nurl = "gs://"\nkey_file = "/nowhere"\n',
            "stores.old.key_file = '/nowhere'",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_setting_before_anything_is_asked(
    tmp_path: Path, command: str, text: str, words: str
) -> None:
    file = written(tmp_path, text)
    shown = CliRunner().invoke(cli, [command, "--config", str(file)])
    assert isinstance(shown.exception, Fatal)
    assert shown.exception.exit_code == EXIT_USAGE
    assert f"{words} cannot be read: No such file or directory" in str(shown.exception)
    assert str(shown.exception).startswith(str(file)), "where it is written"


def test_a_worker_says_at_its_start_what_it_is_and_what_the_environment_overrides(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    say_start(resolve(file), file)
    overrides, start = [record.message for record in caplog.records]
    assert overrides == (f"the environment overrides {file}: kafka.group (PENSTOCK_KAFKA__GROUP)")
    for words in ("same", "group environment", "model rows", "7 rows or 10 ms", "store AWS"):
        assert words in start
    caplog.clear()
    monkeypatch.setenv("PENSTOCK_HTTP_FD", "3")
    say_start(resolve(file), file)
    assert not caplog.records, "of several members the supervisor says it"


def test_a_worker_names_all_its_models_with_the_routes_to_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """
    [model.shadow]
    model = "new"
    percent = 20.0
    [[models]]
    name = "series"
    url = "http://gpu:8000"
    protocol = "oip"
    request = "float32"
    [[models]]
    name = "new"
    [[routes]]
    stream = "site-1/*"
    model = "series"
    """
    file = written(tmp_path, text)
    caplog.set_level(logging.INFO)
    say_start(resolve(file), file)
    assert caplog.records[-1].message == (
        "beside it: model series at http://gpu:8000 (oip, float32); routes: site-1/* to series; "
        "else to rows; shadow new, asked 20 %"
    )


def test_the_endpoint_of_every_aws_client_is_taken_where_none_is_configured() -> None:
    """With plain http, too: the store's client allows it by the configured address alone."""
    resolved = resolve(environ={"AWS_ENDPOINT_URL": "http://minio:9000"})
    assert resolved.config.objects.endpoint_url == "http://minio:9000"
    assert resolved.sources["objects.endpoint_url"] == "AWS_ENDPOINT_URL"
    both = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}
    assert load(environ=both).objects.endpoint_url == "http://b"
    own = both | {"PENSTOCK_OBJECTS__ENDPOINT_URL": "http://c"}
    assert load(environ=own).objects.endpoint_url == "http://c"


URL_KEYS = {
    "objects.endpoint_url": "[objects]\nendpoint_url = {}\n",
    "stores.lake.url": "[stores.lake]\nurl = {}\n",
    "stores.lake.endpoint_url": '[stores.lake]\nurl = "s3://"\nendpoint_url = {}\n',
    "model.url": "[model]\nurl = {}\n",
    "model.management_url": "[model]\nmanagement_url = {}\n",
    "[[models]] 'small': url": '[[models]]\nname = "small"\nurl = {}\n',
}


@pytest.mark.parametrize("key", URL_KEYS)
@pytest.mark.parametrize("url", ["localhost:9000", "minio:9000", "10.0.0.1", "ftp:/minio"])
def test_an_address_without_a_scheme_is_refused_with_the_one_that_it_needs(
    tmp_path: Path, key: str, url: str
) -> None:
    file = written(tmp_path, URL_KEYS[key].format(json.dumps(url)))
    meant = "s3://" if key == "stores.lake.url" else "http://"
    assert refused({}, file).startswith(
        f"{file}: {key} = {url!r} has no scheme; write {meant}{url}"
    )


@pytest.mark.parametrize("key", URL_KEYS)
def test_a_local_path_is_refused_as_an_address(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, URL_KEYS[key].format('"/data/in"'))
    is_server = key.endswith(("management_url", "model.url", "'small': url"))
    assert ("file:///data/in" in refused({}, file)) is not is_server


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://user:s3cr3t@host:abc", "cannot be read: check its host and port"),
        ("http://user:s3cr3t/@host:9000", "cannot be read: check its host and port"),
        ("https://host:99999", "cannot be read: check its host and port"),
        ("http://[::1", "cannot be read: check its host and port"),
        ("http:///bucket", "= 'http:///bucket' has no host"),
    ],
)
@pytest.mark.parametrize("key", ["model.url", "objects.endpoint_url", "stores.lake.endpoint_url"])
def test_an_address_with_a_wrong_host_or_port_is_refused(
    tmp_path: Path, key: str, address: str, words: str
) -> None:
    message = refused({}, written(tmp_path, URL_KEYS[key].format(json.dumps(address))))
    assert f"{key} {words}; write http://localhost" in message
    assert "s3cr3t" not in message


def test_an_address_is_refused_for_its_variable_and_without_its_password() -> None:
    name = "PENSTOCK_MODEL__URL"
    message = refused({name: "user:s3cr3t@server:8080"})
    assert message.startswith(f"{name}: model.url = ")
    assert "s3cr3t" not in message
    assert "must begin with one of http://" in refused({name: "s3://models"})
    assert "has no host or path" in refused({name: "http://"})
    tokens = {"PENSTOCK_KAFKA__OAUTH__PROVIDER": "oidc"}
    for wrong in ("login/token", "ftp://login/token", "https://login:99999/"):
        assert "kafka.oauth.token_url" in refused(
            tokens | {"PENSTOCK_KAFKA__OAUTH__TOKEN_URL": wrong}
        )
    environ = {"PENSTOCK_OBJECTS__ENDPOINT_URL": "file://data"}
    assert "names a host; a folder is file:///data" in refused(environ)
    environ = {"PENSTOCK_MODEL__MANAGEMENT_URL": "unix://run/ts"}
    assert "names a host; a socket is unix:///run/ts" in refused(environ)
    assert "AWS_ENDPOINT_URL: objects.endpoint_url" in refused({"AWS_ENDPOINT_URL": "minio:9000"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_learns_how_to_complete(shell: str) -> None:
    done = CliRunner().invoke(
        cli, [], prog_name="penstock", env={"_PENSTOCK_COMPLETE": f"{shell}_source"}
    )
    assert "_PENSTOCK_COMPLETE" in done.output


def test_a_table_is_written_as_json_in_a_variable() -> None:
    name = "PENSTOCK_SCENES__OFFSETS_MS"
    assert load(None, {name: '{"cam-3": -12}'}).scenes.offsets_ms == {"cam-3": -12}
    assert load(None, {"PENSTOCK_SCENES__MEMBERS": "learned"}).scenes.members == "learned"
    for wrong in ("cam-3=-12", '["cam-3"]', '{"cam-3": "x"}'):
        with pytest.raises(Fatal, match=r"SCENES__OFFSETS_MS|scenes\.offsets_ms"):
            load(None, {name: wrong})


def test_a_store_is_a_section_with_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[stores.lake]\nurl = "az://raw"\naccount = "acme"\n')
    environ = {
        "PENSTOCK_STORES__LAKE__SECRET": "the account's key",
        "PENSTOCK_STORES__LAKE__ACCOUNT": "other",
        "PENSTOCK_STORES__FILES__URL": "sftp://files",
        "PENSTOCK_STORES__FILES__OPTIONS": '{"host": "files", "password": "p4ssw0rd"}',
        "PENSTOCK_STORES__FILES__ROUTE": "scans,archive/2025/",
    }
    resolved = resolve(file, environ)
    lake, files = resolved.config.stores["lake"], resolved.config.stores["files"]
    assert (lake.url, lake.account, lake.secret) == ("az://raw", "other", "the account's key")
    assert (files.route, files.options["host"]) == (["scans", "archive/2025/"], "files")
    assert resolved.sources["stores.lake.url"] == str(file)
    assert resolved.sources["stores.files.url"] == "PENSTOCK_STORES__FILES__URL"
    assert resolved.overridden == {"stores.lake.account": "PENSTOCK_STORES__LAKE__ACCOUNT"}
    assert {"the account's key", "p4ssw0rd"} <= resolved.config.secrets()
    shown = resolved.config.sections()
    assert (
        shown["stores.lake"]["secret"] == shown["stores.files"]["options"]["password"] != "p4ssw0rd"
    )
    assert shown["stores.files"]["options"]["host"] == "files"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"PENSTOCK_STORES__LAKE": "az://"}, "PENSTOCK_STORES__NAME__KEY"),
        (
            {"PENSTOCK_STORES__LAKE__ACOUNT": "a"},
            "no key stores.lake.acount; did you mean account?",
        ),
        ({"PENSTOCK_STORES__LAKE__ACCOUNT": "a"}, "[stores.lake]"),
        ({"PENSTOCK_STORES__LAKE__OPTIONS": "host=files"}, "JSON object"),
    ],
)
def test_an_error_of_a_store_names_the_store(environ: Mapping[str, str], words: str) -> None:
    assert words in refused(environ)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[stores.lake]\nurl = "az://"\nrote = ["x"]\n',
            "no key stores.lake.rote; did you mean route",
        ),
        ('[stores]\nroute = ["x"]\n', "[stores.NAME]: route = ..."),
        (
            '[[models]]\nname = "small"\ntimeout_ms = "x"\n',
            "[[models]] 'small': timeout_ms: Expected",
        ),
        (
            '[[models]]\nname = "small"\nulr = "x"\n',
            "no key [[models]] 'small': ulr; did you mean url",
        ),
        ('[[models]]\nname = "small"\nprotocol = "x"\n', "it is one of torchserve, oip"),
        ('[[priorities]]\nstream = "a"\nclass = "bulk"\n', "it is one of live, backlog"),
        ('[[models]]\nname = "a"\n[[models]]\nurl = "http://x"\n', "[[models]] number 2: "),
        ('[[routes]]\nmodel = "rows"\nstream = 7\n', "[[routes]] number 1: stream: Expected"),
        ("models = [1]\n", "write [[models]]"),
    ],
)
def test_an_error_of_one_of_several_models_or_routes_names_it(
    tmp_path: Path, text: str, words: str
) -> None:
    file = written(tmp_path, text)
    message = refused({}, file)
    assert words in message
    assert "$." not in message


# What a key's name lets one expect of its text, and the keys that are none of it.
NAMES = {
    "secret": r"secret$|password$|token$|^key$|headers$",
    "file": r"_(ca|cert|key)?file$|keytab$",
    "address": r"url$|endpoint$|replicas$",
}
OTHERS = {"routes.key", "objects.replicas", "stores.replicas"}  # a glob, and names of stores


def test_a_key_that_is_called_like_a_secret_a_file_or_an_address_is_marked_as_such() -> None:
    """So that it is masked, checked and trimmed as one (config/marks.py)."""
    missing: dict[str, str] = {}

    def look(name: str, kind: type[Struct]) -> None:
        for key, mark in product(kind.__struct_fields__, NAMES):
            if re.search(NAMES[mark], key) and marks(kind).get(key) != mark:
                missing[f"{name}.{key}"] = mark
        for key, inner in nested(kind).items():
            look(f"{name}.{key}", inner)

    for name, kind in (SECTIONS | NAMED | TABLES).items():
        look(name, kind)
    unmarked = {name: mark for name, mark in missing.items() if name not in OTHERS}
    assert not unmarked, f"mark them where they are declared, or name them in OTHERS: {unmarked}"
    assert missing.keys() == OTHERS, "OTHERS names keys that are gone or marked"


def test_a_key_is_a_secret_by_its_mark_and_not_by_its_name() -> None:
    class Inner(Section, frozen=True):
        word: Secret

    class Table(Section, frozen=True):
        headers: list[str]
        token: str
        shiny: list[Secret]
        inner: Inner | None

    keys = {"headers": ["a"], "token": "t", "shiny": ["b", "c"], "inner": {"word": "d"}}
    assert secrets(Table, keys) == {"b", "c", "d"}
    mask(Table, keys)
    assert keys["headers"] == ["a"]
    assert keys["token"] == "t"
    assert keys["shiny"] == [MASK, MASK]
    assert keys["inner"] == {"word": MASK}


@pytest.mark.parametrize("key", ["key", "region", "profile", "endpoint_url", "ssl_cafile"])
def test_blanks_and_line_breaks_at_the_ends_of_a_text_are_trimmed(key: str, tmp_path: Path) -> None:
    plain = "http://localhost:9000" if key == "endpoint_url" else "x"
    for text in (f"{plain}\n", f" {plain}\r\n", f"\t{plain} "):
        cfg = load(environ={f"PENSTOCK_OBJECTS__{key.upper()}": text})
        assert getattr(cfg.objects, key) == plain
        path = written(tmp_path, f"[objects]\n{key} = {json.dumps(text)}\n")
        assert getattr(load(path, {}).objects, key) == plain


def test_where_blanks_count_only_line_breaks_are_trimmed() -> None:
    cfg = load(
        environ={
            "PENSTOCK_OBJECTS__SECRET": " s \n",
            "PENSTOCK_ROWS__COMMENT": "# \r\n",
            "PENSTOCK_KAFKA__STREAM_FROM": "(?P<stream>a) \n",
            "PENSTOCK_MODEL__REQUEST": "float32\n",
            "PENSTOCK_OBJECTS__ANON": "true\n",
        }
    )
    assert cfg.objects.secret == " s "
    assert cfg.rows.comment == "# "
    assert cfg.kafka.stream_from == "(?P<stream>a) "
    assert (cfg.model.request, cfg.objects.anon) == ("float32", True)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("PENSTOCK_OBJECTS__KEY", "a\nb", "objects.key has a line break"),
        ("PENSTOCK_OBJECTS__REGION", "us\x00east", "objects.region has a line break or another"),
        ("PENSTOCK_OBJECTS__ENDPOINT_URL", "http://a b:9", "objects.endpoint_url has a blank"),
        ("PENSTOCK_OBJECTS__ENDPOINT_URL", "http://a: 9", "objects.endpoint_url has a blank"),
        ("PENSTOCK_MODEL__URL", "http://a\n:9", "model.url has a line break"),
        ("PENSTOCK_MODEL__REPLICAS", "http://a,http://b c", "model.replicas has a blank"),
        ("PENSTOCK_STORES__EU__REGION", "e\nu", "stores.eu.region has a line break"),
        ("PENSTOCK_KAFKA__SASL_PASSWORD", "a\rb", "kafka.sasl_password has a line break"),
        ("AWS_ENDPOINT_URL", "http://a:9\n", "variable AWS_ENDPOINT_URL has blanks or a line"),
        ("AWS_SECRET_ACCESS_KEY", "hush ", "variable AWS_SECRET_ACCESS_KEY has blanks"),
    ],
)
def test_a_line_break_inside_and_a_blank_in_a_host_are_refused(
    name: str, text: str, words: str
) -> None:
    refusals = refused({"PENSTOCK_STORES__EU__URL": "s3://b", name: text})
    assert words in refusals
    assert name in refusals
    assert text not in refusals, "it may be a secret"


def test_a_folder_may_have_blanks_in_its_name() -> None:
    url = "file:///srv/my folder"
    assert load(environ={"PENSTOCK_OBJECTS__ENDPOINT_URL": url}).objects.endpoint_url == url
