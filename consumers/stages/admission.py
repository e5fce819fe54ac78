"""May the reading of an object go on? Asked before each of its steps.

Rule: a step waits until its model's window has room for the stream and the byte budget has room for
more, except when everything behind the object waits for it: then it goes on although the budget is
spent. Owner: the reader of objects, which has a permit for each try.
"""

from contextlib import AbstractAsyncContextManager
from functools import partial

from consumers.budget import Budget
from consumers.core.blocks import Ticket
from consumers.core.retry import Tries
from consumers.decoders.task import Decoder, Decoders
from consumers.ports import Clock
from consumers.stages.microbatch import Microbatch


class GaveWay(Exception):
    """The decoder is needed for an object that everything waits for; this one begins again."""


class Admission:
    """Of the objects of one model. `permit` for each try, `decoder` for what needs one."""

    def __init__(
        self, budget: Budget, microbatch: Microbatch, decoders: Decoders, clock: Clock
    ) -> None:
        self.budget = budget
        self.microbatch = microbatch
        self.decoders = decoders
        self.clock = clock

    def permit(self, ticket: Ticket, tries: Tries) -> "Permit":
        return Permit(self, ticket, tries)

    def decoder(self, ticket: Ticket, *, new: bool) -> AbstractAsyncContextManager[Decoder]:
        """Lent for one try; `new`: it served nobody before."""
        must_go_on = partial(ticket.owner.may_overdraw, ticket)
        return self.decoders.lent(must_go_on, self.budget.review, new=new)


class Permit:
    """For one try at one object. While it `has_decoder`, it gives way to one that must have it."""

    __slots__ = ("_admission", "_ticket", "_tries", "has_decoder")

    def __init__(self, admission: Admission, ticket: Ticket, tries: Tries) -> None:
        self.has_decoder = False
        self._admission = admission
        self._ticket = ticket
        self._tries = tries

    async def next_step(self) -> None:
        """Returns when it may be taken. What was waited is no time of the try. Raises `GaveWay`."""
        admission, stream = self._admission, self._ticket.stream
        budget, microbatch = admission.budget, admission.microbatch
        if budget.has_room and not microbatch.is_crowded(stream):
            return
        began_s = admission.clock.now()
        await microbatch.room(stream)
        if not budget.has_room:
            await budget.room(lambda: self._must_go_on() or self._is_in_the_way())
            if self._is_in_the_way() and not self._must_go_on():
                raise GaveWay
        self._tries.kept_waiting(admission.clock.now() - began_s)

    def _must_go_on(self) -> bool:
        return self._ticket.owner.may_overdraw(self._ticket)

    def _is_in_the_way(self) -> bool:
        return self.has_decoder and self._admission.decoders.is_wanted
