"""Every target on its seeds, on damaged seeds and on any bytes: a few seconds in every run.

The same examples every time, so that no run fails by chance. By hand, with fresh ones:
`FUZZ_EXAMPLES=100000 pytest tests/fuzz --timeout=0`; guided by coverage: `python -m tests.fuzz`.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS

_ASKED = os.environ.get("FUZZ_EXAMPLES")

budget = settings(
    max_examples=int(_ASKED or 60),
    derandomize=_ASKED is None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
every_target = pytest.mark.parametrize("name", TARGETS)


def test_every_target_has_seeds() -> None:
    assert SEEDS.keys() == TARGETS.keys()


@every_target
def test_seeds_are_read(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@every_target
@budget
@given(data=st.data())
def test_damaged_seeds_do_no_harm(name: str, data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from(SEEDS[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(seed)))
        stop = min(len(seed), start + data.draw(st.integers(0, 8)))
        seed[start:stop] = data.draw(st.binary(max_size=8))
    TARGETS[name](bytes(seed[: data.draw(st.integers(0, len(seed)))]))


@every_target
@budget
@given(data=st.binary(max_size=200))
def test_any_bytes_do_no_harm(name: str, data: bytes) -> None:
    TARGETS[name](data)
