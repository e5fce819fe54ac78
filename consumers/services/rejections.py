"""Rows that the model does not answer, answered by the reason why.

Rule: a person can tell from each message whether the row was asked, and how often; an object of
which row after row is rejected is said aloud in the log. Owner: predict.
"""

import logging
from collections.abc import Sequence
from typing import Final

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.core.suspects import LOT, SENTENCE, Suspicions, Trial
from consumers.errors import HungUp, NoAnswer, WorkerDied
from consumers.ports import Clock

log = logging.getLogger(__name__)

# Of many such objects one is logged a minute.
QUIET_S: Final = 60.0


class Rejections:
    """`asked` for a row that was refused alone, `unasked` for those of a sentenced object."""

    def __init__(self, suspicions: Suspicions, clock: Clock) -> None:
        self._suspicions = suspicions
        self._clock = clock
        self._quiet_until_s = 0.0

    def asked(self, block: Block, condemned: Sequence[Block], rejection: Rejection) -> None:
        """This row, and what is rejected with it."""
        trial = self._suspicions.trial_of(block)
        block.reject(rejection)
        if trial is not None:
            trial.why = rejection
            self._count(trial, block, 1)
        self.unasked(condemned)

    def unasked(self, blocks: Sequence[Block]) -> None:
        """Rows of a sentenced object, by the reason for which the last one was rejected."""
        for block in blocks:
            trial = self._suspicions.trial_of(block)
            assert trial is not None
            assert trial.why is not None
            message = (
                f"not asked: the last {SENTENCE} rows of this object that were asked alone were "
                f"refused, and of the rest one in {LOT} is: {trial.why.message}"
            )
            block.reject(Rejection(trial.why.code, message, "predict"))
            self._count(trial, block, block.rows)
        wake_lanes(blocks)

    def _count(self, trial: Trial, block: Block, rows: int) -> None:
        if trial.rejected(rows) and self._clock.now() >= self._quiet_until_s:
            self._quiet_until_s = self._clock.now() + QUIET_S
            assert trial.why is not None
            log.warning(
                "the model refuses row after row of %s: %s", _name(block.ticket), trial.why.message
            )


def lost(error: WorkerDied | NoAnswer, tries: int, attempts: int) -> Rejection:
    """For a row that was sent alone so many times, and each time got this."""
    if isinstance(error, WorkerDied):
        message = (
            f"the model's worker process died each of the {tries} times that this row was "
            f"sent alone, and was well just before: {error}"
        )
        return Rejection("model_rejected", message, "predict", attempts)
    if isinstance(error, HungUp):
        message = (
            f"the model server hung up each of the {tries} times that this row was sent alone, and "
            f"answered others in between: {error}"
        )
        return Rejection("unavailable", message, "predict", attempts)
    message = (
        f"the model server left this row without an answer each of the {tries} times that it was "
        f"sent alone, and answered others just before: {error}"
    )
    return Rejection("unavailable", message, "predict", attempts)


def _name(ticket: Ticket) -> str:
    where = f"partition {ticket.owner.partition}, offset {ticket.record.offset}"
    reference = ticket.reference
    return where if reference is None else f"{reference.bucket}/{reference.key} ({where})"


def wake_lanes(blocks: Sequence[Block]) -> None:
    """Their rows are answered: there may be something to release."""
    # In the order of the rows, so that a run can be repeated exactly; a set has none.
    for lane in dict.fromkeys(block.ticket.owner for block in blocks):
        lane.wake()
