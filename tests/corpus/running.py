"""Runs a case through the whole pipeline, between good neighbours, and reads what came out."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.progress.line_stop import LineLimits
from penstock.core.records.output_records import Blocks
from penstock.core.rows.payload import Form, Payload
from penstock.encodings.output_values import records_of
from penstock.formats.runs import RowOptions
from penstock.messages.codec import References, decode, encode_reference
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import Prediction, decode_prediction
from penstock.ports import Answers
from tests.corpus.cases import Stored, words
from tests.support.behind import decoders_behind
from tests.support.pipelines import BUCKET, DEAD_LETTERS, World, csv, running, until
from tests.support.stand import is_too_long, watched

NEIGHBOUR_ROWS = 3
# Decoded rows that one step of a decoder may add to a budget that is spent, several times over.
OVERDRAFT_BYTES = 32 << 20
# As `limits.inline_bytes`, where the tests' own is so little that most objects are for a decoder.
INLINE_BYTES = 256 << 10


async def any_rows(payloads: Sequence[Payload]) -> Answers:
    """A model that takes numbers and texts."""
    return Answers([b"1"] * sum(payload.rows for payload in payloads), {})


def world(options: RowOptions) -> World:
    # So many failures in a row would stop the line, as they should.
    decoders = decoders_behind()
    made = World(partitions=2, decoders=decoders).with_settings(
        rows=options, line=LineLimits(0.0, 0)
    )
    made.model.script = any_rows
    made.objects.put(BUCKET, "ok.csv", b"1,2\n3,4\n")
    return made


def add_neighbour(to: World, name: str) -> None:
    """Good objects in the partition of the case, and in another."""
    for partition in (0, 1):
        to.announce(f"{name}.csv", csv(NEIGHBOUR_ROWS), partition=partition)


async def run(case_world: World) -> int:
    """Until everything is committed; the most bytes of rows that were held at a time."""
    ends = {number: len(log) for number, log in case_world.source.records.items()}
    async with running(case_world) as pipeline:
        await until(
            lambda: all(case_world.next_offset(number) == end for number, end in ends.items()),
            within_s=600,
        )
    assert not pipeline.wiring.budget.spent_bytes
    return pipeline.wiring.budget.peak_bytes


def answered(by: World, partition: int = 0) -> dict[int, list[Prediction]]:
    """The output by input offset; it must be in order, and every record must be readable."""
    values = [value for _, value in by.sink.topics["predictions"][partition]]
    predictions = [decode_prediction(record) for value in values for record in records_of(value)]
    places = [_place(record) for record in predictions]
    assert places == sorted(places), "out of order"
    assert len(places) == len(set(places)), "repeated"
    by_offset: dict[int, list[Prediction]] = {}
    for record in predictions:
        by_offset.setdefault(record.source.offset, []).append(record)
    return by_offset


def _place(record: Prediction) -> tuple[int, int, float]:
    index = int(record.id.split("/")[-2])
    return record.source.offset, index, float("inf") if record.row is None else record.row


def said(records: Sequence[Prediction]) -> list[str]:
    """The words of `cases`."""
    return [_word(record) for record in records]


def _word(record: Prediction) -> str:
    if record.row is not None:
        return record.error.code if record.error else "row"
    return f"end:{record.error.code}" if record.error else "end"


def check_neighbours(by_offset: dict[int, list[Prediction]], *offsets: int) -> None:
    for offset in offsets:
        assert said(by_offset[offset]) == ["row"] * NEIGHBOUR_ROWS


def check_letters(by: World, answer: str) -> None:
    """A letter for each failure, which can be read and sent back."""
    letters = [
        decode_dead_letter(value)
        for topic in by.sink.topics[DEAD_LETTERS].values()
        for _, value in topic
    ]
    failed = {word.removeprefix("end:") for word in words(answer)} - {"row", "end"}
    assert {letter.code for letter in letters} == failed
    for letter in letters:
        if letter.reference is not None:
            assert decode(encode_reference(letter.reference)) == References((letter.reference,))


async def check_answer(case: Stored, form: Form) -> None:
    """It is answered as it should, and nobody waits for it. A stand that is too long is looked at
    twice more: a collection of garbage, or what is loaded once, may have fallen into it.
    """
    case = replace(case, data=case.body())  # to make it is no work of the loop
    stands_s: list[float] = []
    while len(stands_s) < 3 and (not stands_s or is_too_long(stands_s[-1])):
        with watched() as stand:
            await _check_rows(case, form)
        stands_s.append(stand.longest_s)
    assert not is_too_long(min(stands_s)), stands_s


async def _check_rows(case: Stored, form: Form) -> None:
    """The object between good ones in one partition, others in another."""
    there = world(replace(case.options, form=form))
    if form == "json":  # so that half of the cases go through either form of the output
        there.with_settings(blocks=Blocks(3, "arrow"), inline_bytes=INLINE_BYTES)
    add_neighbour(there, "before")
    there.announce(case.key, case.body())
    add_neighbour(there, "after")
    peak_bytes = await run(there)
    by_offset = answered(there)
    answer = case.answer if case.texts is None or form == "matrix" else case.texts
    assert said(by_offset[1]) == words(answer), [record.error for record in by_offset[1]][:5]
    check_neighbours(by_offset, 0, 2)
    check_neighbours(answered(there, partition=1), 0, 1)
    check_letters(there, answer)
    assert peak_bytes < OVERDRAFT_BYTES
