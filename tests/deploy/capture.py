"""What a worker exported, scrape by scrape, as series in promtool's notation.

Rule: only metrics that the rules use are kept, with the labels that Prometheus adds. Scrapes count
as `EVERY_S` apart, whenever they were made; so rates are scaled, and shares and levels are not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.tools import DEPLOY

RULES: Final = DEPLOY / "prometheus" / "rules.yml"
EVERY_S: Final = 15

# By metric and labels as text: a value of each scrape; None: it was not there.
Scraped = dict[str, list[float | None]]


@cache
def rules() -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found


@cache
def used() -> frozenset[str]:
    """The metrics that the rules ask for, in expressions and in what they tell."""
    text = RULES.read_text()
    return frozenset(re.findall(r"penstock_\w+", text))


def note(page: str | None, scraped: Scraped) -> None:
    """Add a scrape; None: nobody answered."""
    count = max(map(len, scraped.values()), default=0)
    values: dict[str, float] = {"up": float(page is not None)}
    for family in text_string_to_metric_families(page or ""):
        for sample in family.samples:
            if sample.name in used():
                values[_name(sample.name, sample.labels)] = sample.value
    for name in values.keys() - scraped.keys():
        scraped[name] = [None] * count
    for name, seen in scraped.items():
        seen.append(values.get(name))


def _name(metric: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in sorted(labels.items()))
    return f"{metric}{{{inside}}}" if inside else metric


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def series(scraped: Scraped, instance: int = 1) -> list[dict[str, str]]:
    """As `input_series` of a test of promtool."""
    labels = f'job="penstock",instance="10.0.0.{instance}:8900"'
    found = []
    for name, values in scraped.items():
        metric, _, own = name.partition("{")
        whole = f"{metric}{{{labels},{own}" if own else f"{metric}{{{labels}}}"
        found.append({"series": whole, "values": " ".join(_notation(values))})
    return found


def _notation(values: Iterable[float | None]) -> Iterable[str]:
    """What is not there any more is stale, as Prometheus makes it; before, there is nothing."""
    before = None
    for value in values:
        if value is not None:
            yield f"{value:.10g}"
        else:
            yield "_" if before is None else "stale"
        before = value


def at_once(folder: Path) -> Path:
    """The rules as a file, in which each alert fires as soon as its expression is true."""
    file = folder / "rules.yml"
    if not file.exists():
        groups = [{"name": "now", "rules": [{**rule, "for": "0s"} for rule in rules()]}]
        file.write_text(yaml.safe_dump({"groups": groups}))
    return file
