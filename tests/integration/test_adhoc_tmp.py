import asyncio, signal, time
from typing import Any
import pytest
from tests.integration.test_worker_process import *
from tests.integration.test_worker_process import slowly, held_in_the_middle
from tests.support.worker import *

for name in [n for n in list(globals()) if n.startswith("test_")]:
    del globals()[name]

async def test_x_stop_held(services, topics, bucket, s3, broker, proxy, load):
    load.store(s3, bucket)
    await broker.publish(topics.input, load.messages(bucket))
    proxy.hold_after(PASSED_REQUESTS)
    environ = slowly(services, topics, proxy) | {"PENSTOCK_DELIVERY__DRAIN_MS": "500"}
    async with running_worker(environ) as worker:
        await held_in_the_middle(worker, proxy, broker, topics)
        t = time.time()
        code = await worker.stop()
        print("code", code, time.time() - t, worker.said)
        assert code == 0
    proxy.release()
    c = await broker.committed(topics.input, topics.input)
    out = places_of(await broker.records(topics.output))
    exp = load.places(topics.input, below=c)
    assert all(out[n][: len(exp[n])] == exp[n] for n in exp)
    t = time.time()
    await finish(environ, load, broker, topics)
    print("finish", time.time() - t)
    assert first_of_each(places_of(await broker.records(topics.output))) == load.places(topics.input)

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_x_kafka_gone(services, topics, sig):
    environ = environment(services, topics, KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    t = time.time()
    ended = await penstock("run", environ=environ)
    print(ended, time.time() - t)
    assert ended.code == 3

async def test_x_signal_early(services, topics):
    for delay in (0.1, 0.4, 0.6, 0.8, 1.0, 1.2):
        async with running_worker(environment(services, topics)) as worker:
            await asyncio.sleep(delay)
            code = await worker.stop()
            print("delay", delay, code, worker.said[-300:])

async def test_x_signals_twice_and_int(services, topics):
    async with running_worker(environment(services, topics)) as worker:
        await worker.ready()
        worker._process.send_signal(signal.SIGINT)
        worker._process.send_signal(signal.SIGTERM)
        code = await worker.ended()
        print("code", code, worker.said[-500:])
        assert code == 0

async def test_x_join_mid_load(services, topics, bucket, s3, broker, proxy, load):
    load.store(s3, bucket)
    proxy.hold_after(PASSED_REQUESTS)
    environ = slowly(services, topics, proxy)
    other = environment(services, topics)["PENSTOCK_HTTP__PORT"]
    async with running_worker(environ) as first:
        await first.ready(partitions=4)
        await broker.publish(topics.input, load.messages(bucket))
        await held_in_the_middle(first, proxy, broker, topics)
        async with running_worker(environ | {"PENSTOCK_HTTP__PORT": other}) as second:
            await asyncio.sleep(1.5)
            proxy.release()
            await first.ready(partitions=2)
            await second.ready(partitions=2)
            await broker.until_committed(topics.input, topics.input, load.ends)
            await second.kill()
        await broker.publish(topics.input, load.messages(bucket))
        await broker.until_committed(topics.input, topics.input, {n: 2 * e for n, e in load.ends.items()})
        assert await first.stop() == 0, first.said
        print(first.said[-1500:])
    out = places_of(await broker.records(topics.output))
    half = {n: p[: len(p) // 2] for n, p in out.items()}
    assert half == load.places(topics.input)

async def test_x_port_in_use(services, topics):
    environ = environment(services, topics)
    async with running_worker(environ) as worker:
        await worker.ready()
        ended = await penstock("run", environ=environ)
        print(ended)
        assert ended.code == 2

async def test_x_stream_partitioning(services, topics, bucket, s3, broker, load):
    load.store(s3, bucket)
    environ = environment(services, topics, OUTPUT__PARTITIONING="stream", OUTPUT__COMPRESSION="zstd", MODEL__REQUEST="float32")
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, load.messages(bucket))
        await broker.until_committed(topics.input, topics.input, load.ends)
        assert await worker.stop() == 0
    out = places_of(await broker.records(topics.output))
    print({n: {p.stream for p in ps} for n, ps in out.items()})
    got = sorted(p.id for ps in out.values() for p in ps)
    assert got == sorted(p.id for ps in load.places(topics.input).values() for p in ps)
    by = {}
    for ps in out.values():
        for p in ps: by.setdefault(p.stream, []).append((p.key, p.row))
    assert all(v == sorted(v) for v in by.values())
