"""The main job on the real services: a load that is in its bucket, announced, worked off, judged.

Rule: what is expected is the load's own word; what is found is read from the topics. Owner: the
fixture `job`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.loads import Load, Place, assert_predicted, places_of
from tests.support.reference_model import numpy_answers
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker
from tests.support.worker import Worker, environment


@dataclass(frozen=True)
class Job:
    services: Services
    topics: Topics
    bucket: str
    broker: Broker
    load: Load

    def environment(self, **changes: object) -> dict[str, str]:
        """For a worker of this job's group."""
        return environment(self.services, self.topics, None, **changes)

    async def announce(self) -> None:
        await self.broker.publish(self.topics.input, self.load.messages(self.bucket))

    async def finish(self, worker: Worker) -> None:
        """All is committed, and the worker ends well."""
        await self.done()
        assert await worker.stop() == 0, worker.said

    async def done(self) -> None:
        """All is committed."""
        await self.broker.until_committed(self.topics.input, self.topics.input, self.load.ends)

    async def committed(self, broker: Broker | None = None) -> dict[int, int]:
        return await (broker or self.broker).committed(self.topics.input, self.topics.input)

    async def places(self) -> dict[int, list[Place]]:
        """What is on the output topic, by partition."""
        return places_of(await self.broker.records(self.topics.output))

    def expected(self, below: Mapping[int, int] | None = None) -> dict[int, list[Place]]:
        """What has to be; of the messages below these offsets."""
        return self.load.places(self.topics.input, below=below)

    async def assert_answered(self, answers: Sequence[dict[str, Any]] | None = None) -> None:
        """Every row once, in order, by the right prediction."""
        assert await self.places() == self.expected()
        await self.assert_predicted(answers)

    async def assert_predicted(self, answers: Sequence[dict[str, Any]] | None = None) -> None:
        """Whatever is there is right; every row is there."""
        records = await self.broker.records(self.topics.output)
        right = numpy_answers(self.load.rows) if answers is None else answers
        assert_predicted(records, self.load.answers(self.topics.input, right))
