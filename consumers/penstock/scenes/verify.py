"""`penstock verify --scenes`: reads predictions, scenes and late predictions, and feeds them to the
judge.

Rule: no worker is asked. The ends of the output topics are looked up before the end of the input,
so that every prediction that is in one of the scenes is among the predictions that are read. Owner:
the command.
"""

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.scenes.core.rules import Streams
from penstock.scenes.judge import Judge, Report
from penstock.scenes.settings import names, rules_of


async def verify_scenes(cfg: config.Config) -> Report:
    rules_of(cfg.scenes)
    ours = names(cfg.scenes)
    scenes = cfg.scenes
    judge = Judge(Streams(scenes.site), drops=scenes.late == "drop", model=scenes.model)
    async with open_reader(cfg.kafka, cfg.delivery.isolation) as reader:
        late, published = await reader.spans(ours.late), await reader.spans(ours.scenes)
        asked = await reader.spans(ours.input)
        async for record in reader.records(ours.input, asked):
            where = f"{ours.input}/{record.partition}/{record.offset}"
            judge.prediction(where, record.value, record.timestamp)
        async for record in reader.records(ours.scenes, published):
            judge.scene(record.value, record.timestamp)
        async for record in reader.records(ours.late, late):
            judge.late(record.value)
    return judge.report()
