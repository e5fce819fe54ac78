"""What helm makes of the chart is committed, and is what a cluster takes.

Rule: the rendered files are compared where helm is; what they must hold is tested everywhere. After
a change: `helm template` by the command of `render`, into the file.
"""

import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock import config
from penstock.commands.root import cli
from penstock.tools.lint import lint
from tests.deploy.tools import DEPLOY, RENDERED, rendered, tool

# The chart asks for a newer one than helm supposes where it has no cluster.
KUBERNETES = "1.34.0"
NAMES = sorted(path.stem for path in RENDERED.glob("*.yaml"))
# Values of the chart for brokers of clouds.
CLOUDS = DEPLOY / "values"


def helm(values: Path) -> "subprocess.CompletedProcess[str]":
    command = [tool("helm"), "template", "cams", str(DEPLOY / "helm")]
    command += ["--kube-version", KUBERNETES, "--values", str(values)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(name: str) -> str:
    """The chart with the values of `name`."""
    cloud = CLOUDS / f"{name}.yaml"
    parts = helm(cloud if cloud.exists() else RENDERED / "values" / f"{name}.yaml")
    assert parts.returncode == 0, parts.stderr
    return parts.stdout


def pods(name: str) -> dict[str, dict[str, Any]]:
    """The pods' specs by the kind that makes them."""
    found = {}
    for one in rendered(name):
        spec = one["spec"]["jobTargetRef"] if one["kind"] == "ScaledJob" else one.get("spec", {})
        if "template" in spec:
            found[one["kind"]] = spec["template"]["spec"]
    return found


def environ(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}


def test_there_are_renderings_of_one_worker_a_fleet_a_backfill_and_of_each_cloud() -> None:
    clouds = [path.stem for path in CLOUDS.glob("*.yaml")]
    assert sorted(["backfill", "default", "fleet", *clouds]) == NAMES
    assert pods("default").keys() == {"StatefulSet"}
    assert pods("fleet").keys() == {"StatefulSet", "ScaledJob", "Deployment"}
    assert pods("backfill").keys() == {"StatefulSet", "Job"}


@pytest.mark.parametrize("path", sorted(CLOUDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configuration_for_a_cloud_has_no_fault(path: Path, tmp_path: Path) -> None:
    """And needs no secret."""
    values = yaml.safe_load(path.read_text())
    file = tmp_path / "penstock.toml"
    file.write_text(values["config"])
    assert "existingSecret" not in values
    assert not lint(file, {}, ())


def test_scenes_are_made_beside_the_workers_and_seen_by_prometheus() -> None:
    scenes = pods("fleet")["Deployment"]
    (container,) = scenes["containers"]
    assert container["args"][0] == "scenes"
    assert container["resources"] != pods("fleet")["StatefulSet"]["containers"][0]["resources"]
    assert "PENSTOCK_KAFKA__INSTANCE_ID" not in environ(scenes)
    seen = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        for one in rendered("fleet")
        if one["kind"] == "PodMonitor"
    }
    assert seen == {"worker", "backfill", "scenes"}


def test_prometheus_sends_the_token_that_metrics_ask_for() -> None:
    monitors = [one for one in rendered("fleet") if one["kind"] == "PodMonitor"]
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["authorization"]["credentials"] == {
            "name": "penstock-credentials",
            "key": "PENSTOCK_HTTP__TOKEN",
        }


def test_pods_are_placed_and_pulled_as_the_values_say() -> None:
    for pod in pods("fleet").values():
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["priorityClassName"] == "live"
        (spread,) = pod["topologySpreadConstraints"]
        assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    (workers,) = [one for one in rendered("fleet") if one["kind"] == "StatefulSet"]
    assert workers["spec"]["template"]["metadata"]["annotations"]["acme.example/team"] == "vision"


@pytest.mark.parametrize("name", NAMES)
def test_helm_renders_what_is_committed(name: str) -> None:
    assert render(name) == (RENDERED / f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    "config", ['[kafka]\n  input_topics = ["a", "b"]', 'kafka.input_pattern = "cams[.].*"']
)
def test_a_backfill_beside_several_topics_is_refused(config: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": config, "backfill": {"enabled": True}}))
    parts = helm(values)
    assert parts.returncode != 0
    assert "install the backfill as a release of its own" in parts.stderr


@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_takes_what_is_rendered(name: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    ours = [one for one in rendered(name) if one["apiVersion"].partition("/")[0] not in FOREIGN]
    assert len(ours) >= 6
    for our in ours:
        validate.validate(our, KUBERNETES.rpartition(".")[0], strict=True)


# Kinds that operators bring; kubernetes-validate does not know them.
FOREIGN = ("keda.sh", "monitoring.coreos.com")


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_may_drain_and_may_do_nothing_else(name: str) -> None:
    for pod in pods(name).values():
        (worker,) = pod["containers"]
        drain_ms = int(environ(pod)["PENSTOCK_DELIVERY__DRAIN_MS"])
        assert pod["terminationGracePeriodSeconds"] == -(-drain_ms // 1000) + 10
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        assert worker["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["topologySpreadConstraints"]


def test_a_private_authority_can_be_mounted_and_an_identity_of_the_cloud_given() -> None:
    for pod in pods("fleet").values():
        (worker,) = pod["containers"]
        mounts = {
            volumeMount["name"]: volumeMount["mountPath"] for volumeMount in worker["volumeMounts"]
        }
        assert mounts["authority"] == "/etc/authority"
        assert {volume["name"] for volume in pod["volumes"]} == mounts.keys()
    (account,) = [one for one in rendered("fleet") if one["kind"] == "ServiceAccount"]
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]


@pytest.mark.parametrize("name", NAMES)
def test_the_variables_are_keys_of_the_configuration(name: str) -> None:
    for pod in pods(name).values():
        for variable in environ(pod):
            section, _, key = variable.removeprefix("PENSTOCK_").lower().partition("__")
            assert hasattr(getattr(config.Config(), section), key)


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_are_options_of_the_command(name: str) -> None:
    for pod in pods(name).values():
        command, *arguments = pod["containers"][0]["args"]
        of_command = cli.get_command(click.Context(cli), command)
        assert of_command is not None
        known = {opt for parameter in of_command.params for opt in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_restarted_workers_keep_their_place_and_scaled_ones_give_it_up() -> None:
    for name, leaves in (("default", False), ("fleet", True)):
        pod = pods(name)["StatefulSet"]
        assert environ(pod)["PENSTOCK_KAFKA__INSTANCE_ID"] == "{hostname}"
        assert ("--leave" in pod["containers"][0]["args"]) == leaves
    (workers,) = [one for one in rendered("default") if one["kind"] == "StatefulSet"]
    assert workers["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize(("name", "kind"), [("backfill", "Job"), ("fleet", "ScaledJob")])
def test_a_backfill_ends_by_itself_and_shares_no_group(name: str, kind: str) -> None:
    pod, worker = pods(name)[kind], pods(name)["StatefulSet"]
    assert pod["containers"][0]["args"][:2] == ["run", "--until-end"]
    assert pod["restartPolicy"] == "Never"
    assert "PENSTOCK_KAFKA__INSTANCE_ID" not in environ(pod)
    assert "PENSTOCK_KAFKA__GROUP" in environ(pod)
    assert "PENSTOCK_KAFKA__GROUP" not in environ(worker)


def test_the_chart_has_the_alerts() -> None:
    (rule,) = [one for one in rendered("fleet") if one["kind"] == "PrometheusRule"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    assert rule["spec"] == rules


def test_a_copied_chart_has_its_own_file_of_the_alerts() -> None:
    """Helm packs no symbolic link that leads out of the chart."""
    copy, rules = DEPLOY / "helm" / "files" / "rules.yml", DEPLOY / "prometheus" / "rules.yml"
    assert not copy.is_symlink()
    assert copy.read_bytes() == rules.read_bytes()
