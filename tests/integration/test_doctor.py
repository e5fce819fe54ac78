"""`penstock doctor` on real topics: what brokers say, and that only missing topics are made."""

from typing import Any

from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock


async def test_faults_of_topics_and_buckets_are_found_in_one_run(
    services: Services, make_topics: Any, broker: Broker
) -> None:
    topics = await make_topics(2, cleanup_policy="compact", min_insync_replicas="2")
    await broker.publish(topics.input, [Message({"bucket": "b", "key": "k"}, 1)])
    environ = environment(services, topics, OBJECTS__ALLOW="no-such-bucket-of-ours/")
    ended = await penstock("doctor", environ=environ)
    decoded = ended.stdout.decode()
    assert ended.code == 1
    for topic in (topics.output, topics.dlq):
        assert f"wrong  {topic}: it is compacted" in decoded
        assert f"wrong  {topic}: min.insync.replicas is 2, but it has 1 replicas" in decoded
    assert f"{topics.input}: " not in decoded
    assert "wrong  bucket no-such-bucket-of-ours: objects.allow names it" in decoded


async def test_only_topics_that_are_missing_are_made(
    services: Services, topics: Topics, broker: Broker
) -> None:
    fresh = Topics(topics.input, f"{topics.output}-new", f"{topics.output}-new.dlq")
    environ = environment(services, fresh, OBJECTS__ALLOW="no-such-bucket-of-ours/")
    before = await broker.topics()
    ended = await penstock("doctor", environ=environ)
    assert f"there is no topic {fresh.output} " in ended.stdout.decode()
    assert f"there is no topic {fresh.dlq} " in ended.stdout.decode()
    assert fresh.output not in await broker.topics()
    try:
        fixed = await penstock("doctor", "--fix", environ=environ)
        made = {topic: len(await broker.ends(topic)) for topic in (fresh.output, fresh.dlq)}
        assert made == {fresh.output: 4, fresh.dlq: 4}
        assert f"ok     topics: created {fresh.output}, with 4 partitions" in fixed.stdout.decode()
        assert fixed.code == 1  # the bucket is still missing
        assert (await broker.topics()) - before >= {fresh.output, fresh.dlq}
    finally:
        await broker.delete({fresh.output, fresh.dlq} & await broker.topics())
