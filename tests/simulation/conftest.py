"""`pytest tests/simulation --seed 17` replays one history; `--seeds 20000` looks at more."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="simulate this seed alone")
    parser.addoption("--seeds", type=int, default=None, help="how many seeds to simulate")
