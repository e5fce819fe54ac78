"""Are the topics there, and do they fit each other?"""

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.sink import KafkaSink
from penstock.doctor.finding import LOOK_S
from penstock.ops.topics import check_rekey, check_topics
from penstock.process.clock import SystemClock


async def look_at_topics(cfg: config.Config) -> str:
    kafka = replace(cfg.kafka, timeout_ms=min(cfg.kafka.timeout_ms, int(LOOK_S * 1000) - 1_000))
    sink = KafkaSink(kafka, SystemClock())
    try:
        await sink.start()
        counts = await check_topics(cfg.after_rekey(), sink)
    finally:
        await sink.stop()
    if cfg.kafka.rekey is not None:
        counts = await check_rekey(replace(cfg, kafka=kafka)) | counts
    topics = ", ".join(f"{topic} ({count} partitions)" for topic, count in counts.items())
    return f"{topics} on {kafka.bootstrap_servers}"
