"""Each alert fires on its own failure and on no other; none fires in health and restarts."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from penstock.scenes.page import SiteMetrics
from penstock.telemetry.worker import Telemetry
from tests.deploy.capture import RULES
from tests.deploy.scenarios import FAILURES, HEALTH, QUIET, Series, named
from tests.deploy.tools import ROOT, tool
from tests.scenes.world import World

ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
}
FIRED = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1h]))'


def scenario(name: str, workers: list[Series], fired: list[str]) -> dict[str, Any]:
    series: Series = {}
    for number, changes in enumerate(workers, start=1):
        series |= named(number, changes)
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in fired]
    return {
        "name": name,
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": FIRED, "eval_time": "1h", "exp_samples": expected}],
    }


def judged(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What promtool says; an exit code of 0 is agreement."""
    file = folder / "tests.yml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    command = [tool("promtool"), "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_there_are_eighteen_alerts_and_a_failure_for_each() -> None:
    assert len(ALERTS) == 18
    assert ALERTS.keys() == FAILURES.keys()


@pytest.mark.parametrize("alert", FAILURES)
def test_an_alert_fires_on_its_own_failure_alone(alert: str, tmp_path: Path) -> None:
    report = judged(tmp_path, [scenario(alert, [FAILURES[alert], {}], [alert])])
    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize("name", QUIET)
def test_no_alert_fires_in_health_and_restarts(name: str, tmp_path: Path) -> None:
    report = judged(tmp_path, [scenario(name, QUIET[name], [])])
    assert report.returncode == 0, report.stdout + report.stderr


def test_no_worker_at_all_is_an_alert(tmp_path: Path) -> None:
    gone = scenario("no worker", [], ["PenstockMetricsAbsent"])
    gone["input_series"] = [{"series": "unrelated", "values": "1x240"}]
    assert judged(tmp_path, [gone]).returncode == 0


def test_promtool_accepts_the_rules() -> None:
    command = [tool("promtool"), "check", "rules", "--lint-fatal", str(RULES)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_scenarios_and_the_rules_use_what_a_worker_exports() -> None:
    telemetry = Telemetry(0.05)
    shadow = telemetry.of_shadow()
    shadow.compared("a", 1, 1)
    telemetry.rejected("bad_row", 1)
    telemetry.replicas.store_failed_over("near")
    telemetry.registry.register(SiteMetrics(World().ledger()))
    page = generate_latest(telemetry.registry).decode()
    kinds = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    kinds |= {f"{kind}_count" for kind in kinds}
    for name in {*HEALTH, *(name for changes in FAILURES.values() for name in changes)} - {"up"}:
        metric, _, labels = name.replace("'", '"').partition("{")
        assert metric in kinds
        if labels and not re.search("bound_by|problem|scenes", metric):
            assert f"{metric}{{{labels}" in page
    used = {name for rule in ALERTS.values() for name in re.findall(r"penstock_\w+", rule["expr"])}
    assert used <= kinds


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_its_section_in_the_runbook(alert: str) -> None:
    page, _, anchor = ALERTS[alert]["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == alert.lower()
    assert alert in headings
