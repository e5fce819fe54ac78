"""The judge for routes that let several models answer an object. It consists of several judges: one
for each of these models, and one for all objects that a single model answers.

Rule: if several models answer an object, each model must answer it once, and the `model` of a
record tells which model answered. All objects with a single model share one judge, whichever that
model is, because the shares of a split may change. Owner: `read_topics`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
from msgspec import Struct

from penstock.core.routing.model_routes import Routes, place_of
from penstock.messages.prediction import Source
from penstock.tools.verify.fields import AskedFields, Fields, asked_of
from penstock.tools.verify.findings import Report, together
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.records_and_open_objects import NOT_JSON
from penstock.tools.verify.result_objects import Claim
from penstock.tools.verify.scope_and_input_topic import (
    NOT_OURS,
    Message,
    Scope,
    Wants,
    message_of,
    wants,
)


class _Said(Struct, gc=False):
    """The fields of a record or a letter that name model and object. A record tells the object's
    index in its id, a letter in `object_index`.
    """

    model: str = ""
    id: str = ""
    source: Source | None = None
    object_index: int = 0

    @property
    def index(self) -> int:
        parts = self.id.split("/")
        is_record = len(parts) > 1 and parts[-2].isdecimal()
        return int(parts[-2]) if is_record else self.object_index


_said = msgspec.json.Decoder(_Said).decode


class SeveralJudges:
    """Has the methods of `Judge`, and judges all models together."""

    def __init__(self, scope: Scope, routes: Routes) -> None:
        self._routes = routes
        self._naming, self._times = scope.naming, scope.times
        self._fields = AskedFields.of(scope)
        self._references = self._ignored = 0
        names = [model for one in routes.routes if len(one.models) > 1 for model in one.models]
        self._alone = Judge(scope, self._fields)
        self._of = {
            name: Judge(replace(scope, place_of=partial(place_of, model=name)), self._fields)
            for name in dict.fromkeys(names)
        }

    @property
    def repeated(self) -> set[int]:
        return self._alone.repeated.union(*(judge.repeated for judge in self._of.values()))

    def reference(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        message = message_of(value)
        wanted = wants(message)
        self._references += bool(wanted)
        self._ignored += not wanted
        self._fields[partition].add(
            offset, asked_of(message, key, partition, self._naming, self._times)
        )
        asked = self._models(partition, key, message) if wanted else []
        for name, judge in self._of.items():
            judge.ask(partition, offset, _ours(wanted, [name in models for models in asked]))
        self._alone.ask(partition, offset, _ours(wanted, [not models for models in asked]))

    def _models(self, partition: int, key: bytes | None, message: Message) -> list[tuple[str, ...]]:
        """For each object of the message: the models that answer it if there are several, else an
        empty tuple.
        """
        asked = asked_of(message, key, partition, self._naming, self._times)
        return [() if message is None or one.model else self._several(one) for one in asked]

    def _several(self, one: Fields) -> tuple[str, ...]:
        bucket, key, _ = one.object or (None, None, None)
        models = self._routes.of(one.stream, bucket, key)
        return models if len(models) > 1 else ()

    def answer(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._judge(value).answer(partition, offset, key, value)

    def compare(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._judge(value).compare(partition, offset, key, value)

    def dead_letter(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        self._judge(value).dead_letter(partition, offset, key, value)

    def _judge(self, value: bytes | None) -> Judge:
        """If the record's model is one of several that were asked for the object: the judge of this
        model. Otherwise: the judge of all objects with a single model.
        """
        try:
            said = _said(value or b"")
        except NOT_JSON:
            return self._alone
        judge = self._of.get(said.model)
        if judge is None:
            return self._alone
        if said.source is not None and not judge.asks_at(said.source, said.index):
            return self._alone
        return judge

    @property
    def claims(self) -> list[tuple[Judge, list[Claim]]]:
        return [claim for one in (self._alone, *self._of.values()) for claim in one.claims]

    def report(self) -> Report:
        reports = [self._alone.report(), *(judge.report() for judge in self._of.values())]
        # All judges see the same messages, so messages are counted here. Several judges may see the
        # same stream, so the judges' counts of streams must not be summed. Only one judge sees a
        # record, so their counts of `outside` can be summed.
        return msgspec.structs.replace(
            together(reports),
            references=self._references,
            ignored=self._ignored,
            streams=max(one.streams for one in reports),
            outside=sum(one.outside for one in reports),
        )


def _ours(wanted: Wants, are_ours: Sequence[bool]) -> Wants:
    if not any(are_ours):
        return ()
    return tuple(
        want if is_ours else NOT_OURS for want, is_ours in zip(wanted, are_ours, strict=True)
    )
