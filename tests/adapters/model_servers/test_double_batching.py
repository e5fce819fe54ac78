"""When to advise against the model server's own batching, and with which figure."""

import pytest

from penstock.adapters.model_servers.torchserve import (
    ServerBatching,
    calls_to_fill,
    double_batching_warning,
)


@pytest.mark.parametrize(
    ("batch_size", "max_batch_delay_ms"), [(1, 0), (1, 100), (0, 100), (32, 0)]
)
def test_a_server_that_does_not_wait_for_others_needs_no_advice(
    batch_size: int, max_batch_delay_ms: int
) -> None:
    assert (
        double_batching_warning(ServerBatching(batch_size, max_batch_delay_ms), max_in_flight=4)
        is None
    )


@pytest.mark.parametrize(
    ("batch_size", "max_in_flight", "wait", "how_often"),
    [
        (2, 1, "10 ms for 1 others", "max_in_flight 1 < 2 one worker's calls always do"),
        (32, 4, "10 ms for 31 others", "max_in_flight 4 < 32 one worker's calls always do"),
        (4, 4, "10 ms for 3 others", "max_in_flight 4 they do whenever fewer than 4 wait"),
        (2, 4, "10 ms for 1 others", "max_in_flight 4 they do whenever fewer than 2 wait"),
    ],
)
def test_a_server_that_waits_is_told_with_what_it_costs(
    batch_size: int, max_in_flight: int, wait: str, how_often: str
) -> None:
    advice = double_batching_warning(ServerBatching(batch_size, 10), max_in_flight=max_in_flight)
    assert advice is not None
    assert wait in advice
    assert how_often in advice
    assert "batchSize to 1" in advice


@pytest.mark.parametrize(
    ("server", "calls"),
    [
        (ServerBatching(1, 100), 2),
        (ServerBatching(8, 50, workers=2), 32),
        (ServerBatching(8, 50, workers=0), 16),
        (ServerBatching(32, 50, workers=4, queue_size=100), 100),
    ],
)
def test_calls_of_one_row_fill_a_batch_while_the_one_before_is_answered(
    server: ServerBatching, calls: int
) -> None:
    assert calls_to_fill(server) == calls
