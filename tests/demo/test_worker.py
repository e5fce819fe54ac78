"""What the demo reads off its worker's metrics."""

from prometheus_client import generate_latest

from penstock.telemetry.worker import Telemetry
from penstock.tools.demo.worker import ROWS_IN_ALL, batches


def test_batches_are_counted_by_the_reason_for_which_they_closed() -> None:
    telemetry = Telemetry()
    telemetry.batch_closed("deadline", rows=30, waited_s=0.01)
    telemetry.batch_closed("deadline", rows=20, waited_s=0.01)
    telemetry.batch_closed("rows", rows=512, waited_s=0.001)
    page = generate_latest(telemetry.registry)
    assert batches(page) == {"deadline": 2, "rows": 1, ROWS_IN_ALL: 562}


def test_a_worker_that_has_closed_no_batch_has_none() -> None:
    assert batches(generate_latest(Telemetry().registry)).total() == 0
