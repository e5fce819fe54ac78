"""Writes what operators say about stopped lines, and marks it when it was obeyed.

Rule: the words about a partition are the metadata of one commit of a second group, which has no
members, so they survive restarts. Several commands and workers may write that commit at the same
time, and a later write replaces an earlier one. So who has written reads again after a while, and
writes once more if the words are not as they must be. A word that no worker obeys expires with the
second group's positions, after the broker's `offsets.retention.minutes` (a week). Owners: the
command, and the source.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import opened, within
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.positions import lines_group, words
from penstock.adapters.kafka.positions_from_outside import member_of_none
from penstock.core.order.line_stop import MOST_WORDS, Word, decode_words, encode_words, obeyed
from penstock.errors import usage
from penstock.ports import Where

Change = Callable[[list[Word]], list[Word]]

# Between a write and the look whether it has held: longer than another process takes from its read
# to its write. The pauses differ, so that of several processes one is the last to write.
READ_BACK_S = (0.3, 0.9)
# Between two looks whether a worker has obeyed.
LOOK_S = 0.5


async def tell_stopped_lines(settings: config.Kafka, said: Mapping[Where, Word]) -> None:
    """Tell the group's workers what to do with partitions, or single streams, that have stopped.
    Returns when the words have held. Raises `Fatal` if too many words about a partition wait.
    """

    def adds(word: Word) -> Change:
        def change(known: list[Word]) -> list[Word]:
            if any(other[:4] == word[:4] for other in known):
                return known  # a worker may have obeyed it already
            if sum(not other.is_done for other in known) >= MOST_WORDS:
                raise usage(
                    f"{MOST_WORDS} words about a partition wait for its worker, and no more are "
                    "kept: is a worker running? Say this again when they are obeyed"
                )
            return [*known, word]

        return change

    await _change(settings, {where: adds(word) for where, word in said.items()})


async def mark_obeyed(settings: config.Kafka, where: Where, done: Collection[Word]) -> None:
    await _change(settings, {where: lambda known: obeyed(known, done)})


async def obeyed_words(
    settings: config.Kafka, said: Mapping[Where, Word], within_s: float
) -> Collection[Where]:
    """Wait until workers have obeyed the words, or the time has passed. Returns the partitions
    whose words were obeyed.
    """
    group = lines_group(settings.group)
    consumer = member_of_none(settings, group)
    left = {TopicPartition(*where): word for where, word in said.items()}
    done: list[Where] = []
    async with opened(consumer, settings, "a question about stopped lines"):
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while left:
                    texts = await words(client_of(consumer), group, left)
                    for part, word in list(left.items()):
                        known = decode_words(texts.get(part, ""))
                        if any(one.is_done and one[:4] == word[:4] for one in known):
                            del left[part]
                            done.append(Where(*part))
                    await asyncio.sleep(LOOK_S if left else 0.0)
    return done


async def _change(settings: config.Kafka, changes: Mapping[Where, Change]) -> None:
    group = lines_group(settings.group)
    consumer = member_of_none(settings, group)
    left = {TopicPartition(*where): change for where, change in changes.items()}
    what = "a word about stopped lines"
    async with (
        opened(consumer, settings, what),
        within(what, settings.timeout_ms / 1000),
    ):
        consumer.assign(list(left))
        consumer.pause(*left)  # else it would fetch the records of the topic
        while left:
            texts = await words(client_of(consumer), group, left)
            new = {part: _changed(texts.get(part, ""), change) for part, change in left.items()}
            left = {part: change for part, change in left.items() if new[part] is not None}
            if left:
                # The offset means nothing. Kafka only keeps metadata together with an offset.
                await consumer.commit({part: OffsetAndMetadata(0, new[part]) for part in left})
                await asyncio.sleep(random.uniform(*READ_BACK_S))


def _changed(text: str, change: Change) -> str | None:
    """The text after the change; None if it is as it must be."""
    known = decode_words(text)
    changed = change(known)
    return None if changed == known else encode_words(changed)
