"""`penstock run --dry-run`: shows the records that a worker would publish, in lines.

Rule: people see only the first rows, the errors and the last row of each object, and how many rows
are left out. Programs get every record. Owner: the command.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from penstock.encodings.output_values import records_of
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import Prediction, decode_prediction
from penstock.messages.reference import SchemaError
from penstock.ports import Outgoing
from penstock.terminal_text import cut, visible
from penstock.verify.answers.answer_text import object_text, said
from penstock.verify.findings import counted

FIRST_ROWS = 3
# At most this many errors of one object are shown, because a broken file may have a million.
MOST_ERRORS = 10


class DryRun:
    """`show` each record that would be sent, in order. `echo` gets the lines. The counts include
    the records that are not shown.
    """

    def __init__(self, letters_topic: str, echo: Callable[[str], None], *, as_json: bool) -> None:
        self._echo = echo
        self.answers = self.errors = self.letters = 0
        self._letters_topic = letters_topic
        self._as_json = as_json
        self._shown: Counter[str] = Counter()
        self._hidden: Counter[str] = Counter()

    def show(self, outgoing: Outgoing) -> None:
        for line in self._lines(outgoing):
            self._echo(line)

    def _lines(self, outgoing: Outgoing) -> Iterator[str]:
        is_letter = outgoing.topic == self._letters_topic
        for key, value in zip(outgoing.keys, outgoing.values, strict=True):
            name = None if key is None else key.decode(errors="replace")
            for record in [value] if is_letter else records_of(value):
                text = self._letter(record) if is_letter else self._answer(record)
                if self._as_json:
                    yield _as_json(outgoing, name, record)
                elif text is not None:
                    where = f"{outgoing.topic}/{outgoing.partition}"
                    yield f"{where}  {visible(name or '-')}  {text}"

    def _letter(self, value: bytes) -> str | None:
        self.letters += 1
        letter = decode_dead_letter(value)
        about = f"{letter.object.bucket}/{letter.object.key}" if letter.object else "the message"
        if self._is_hidden(f"letter {about}", MOST_ERRORS):
            return None
        return f"letter: {letter.code} at {letter.stage}, {cut(about)}: {cut(letter.message)}"

    def _answer(self, value: bytes) -> str | None:
        self.answers += 1
        try:
            answer = decode_prediction(value)
        except SchemaError as error:
            return f"answer: {visible(str(error))}"
        self.errors += answer.error is not None
        id, about = answer.id.rpartition("/")[0], object_text(answer)
        if answer.error is not None:
            hides = self._is_hidden(f"error {id}", MOST_ERRORS)
        else:
            hides = self._is_hidden(id, FIRST_ROWS)
        if hides and not answer.last:
            self._hidden[id] += 1
            return None
        return f"{cut(answer.id)}  {cut(about)}: {cut(said(answer))}{self._end(answer, id)}"

    def _end(self, answer: Prediction, id: str) -> str:
        if not answer.last:
            return ""
        hidden = self._hidden.pop(id, 0)
        before = f", {counted(hidden, 'row')} before it not shown" if hidden else ""
        return f"  (the last of {counted(answer.rows or 0, 'row')}{before})"

    def _is_hidden(self, what: str, most: int) -> bool:
        self._shown[what] += 1
        return self._shown[what] > most


def _as_json(outgoing: Outgoing, key: str | None, record: bytes) -> str:
    where = {"topic": outgoing.topic, "partition": outgoing.partition, "key": key}
    return msgspec.json.encode({**where, "record": msgspec.Raw(record)}).decode()
