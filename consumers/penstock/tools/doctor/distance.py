"""How far away the services are, and what the configuration permits at this distance.

Rule: the requests are those of a worker, one after the other over one connection, and the median
counts. By Little's law, `n` requests at a time to a service that takes `t` seconds are `n / t` a
second; more than that no setting permits, and the worker's own CPU may permit less. Nothing is
written: a question for the end of a partition stands for a write, as it goes to the same broker.
Owner: `examine`.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from penstock import config
from penstock.adapters.kafka.positions_from_outside import open_groups
from penstock.adapters.model_servers.protocols import open_model
from penstock.adapters.stores.choice import open_objects
from penstock.errors import Poison
from penstock.ports import Where
from penstock.tools.doctor.finding import hurried
from penstock.tools.doctor.models_and_routes import first_row, model_of
from penstock.tools.doctor.stores import place_of

# The first request of a connection opens it, and is not counted.
TRIES: Final = 7
# The rate of the streams in docs/performance.md.
HZ: Final = 20


async def look_at_distance(cfg: config.Config, url: str) -> str:
    """`url`: an object that can be read and whose first row the model answers."""
    location = place_of(cfg, url)
    chosen = model_of(cfg, location)[1]
    async with aclosing(open_objects(cfg, lazily=True)) as objects:
        store_s = await _median_s(lambda: objects.part(location, 0, 1))
    row = await first_row(chosen, location)
    async with aclosing(open_model(chosen)) as model:
        model_s = await _median_s(lambda: model.predict([row]))
    kafka = hurried(cfg.kafka)
    async with open_groups(kafka, kafka.isolation) as groups:
        kafka_s = await _median_s(lambda: groups.ends([Where(cfg.output.topic, 0)]))
    return permitted(chosen, store_s, model_s, kafka_s)


async def _median_s(ask: Callable[[], Awaitable[object]]) -> float:
    took_s = []
    for _ in range(TRIES + 1):
        begun_s = time.perf_counter()
        with suppress(Poison):  # a refusal is an answer, and took its time
            await ask()
        took_s.append(time.perf_counter() - begun_s)
    return statistics.median(took_s[1:])


def permitted(cfg: config.Config, store_s: float, model_s: float, kafka_s: float) -> str:
    reads, calls, rows = cfg.objects.most_fetches, cfg.model.most_calls, cfg.window.max_rows
    objects_per_s, rows_per_s = reads / store_s, calls * rows / model_s
    least_ms = 1000 * (store_s + model_s + 2 * kafka_s)
    return (
        f"a read takes {1000 * store_s:.3g} ms, a call with one row {1000 * model_s:.3g} ms, a "
        f"question to Kafka {1000 * kafka_s:.3g} ms (medians of {TRIES}): an object is answered "
        f"after {least_ms:,.0f} ms or more. {reads} reads and {calls} calls of {rows} rows at a "
        f"time permit {objects_per_s:,.0f} objects a second (small ones of "
        f"{objects_per_s / HZ:,.0f} streams at {HZ} Hz) and {rows_per_s:,.0f} rows a second, if "
        "store, model and this machine bear it; penstock bench streams measures what the machine "
        "bears at this distance"
    )
