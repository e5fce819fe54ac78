"""Rejects rows that the model does not answer, with the reason.

Rule: each message tells whether the model was asked about the row, and how often. An object with
many rejected rows is named in the log. Owner: predict.
"""

import logging
from collections.abc import Sequence
from typing import Final

from consumers.core.blocks import Block, Rejection, Ticket
from consumers.core.suspects import LOT, SENTENCE, Suspicions, Trial
from consumers.errors import HungUp, NoAnswer, WorkerDied
from consumers.ports import Clock

log = logging.getLogger(__name__)

# At most one such object a minute is logged.
QUIET_S: Final = 60.0


class Rejections:
    """`asked`: for a row that was refused alone. `unasked`: for rows of an object that had so many
    refusals that most of its other rows are rejected without a request (`core.suspects`).
    """

    def __init__(self, suspicions: Suspicions, clock: Clock) -> None:
        self._suspicions = suspicions
        self._clock = clock
        self._quiet_until_s = 0.0

    def asked(self, block: Block, with_it: Sequence[Block], rejection: Rejection) -> None:
        """Reject this row, and the rows that share its fate without being asked."""
        trial = self._suspicions.trial_of(block)
        block.reject(rejection)
        if trial is not None:
            trial.why = rejection
            self._count(trial, block, 1)
        self.unasked(with_it)

    def unasked(self, blocks: Sequence[Block]) -> None:
        """Reject rows without a request, with the reason of the last row that was asked."""
        for block in blocks:
            trial = self._suspicions.trial_of(block)
            assert trial is not None
            assert trial.why is not None
            message = (
                f"not asked: the last {SENTENCE} rows of this object that were asked alone were "
                f"refused, so only one in {LOT} of the rest is asked: {trial.why.message}"
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
    """The rejection of a row that was sent alone `tries` times and got this error each time."""
    if isinstance(error, WorkerDied):
        message = (
            f"the model's worker process died each of the {tries} times that this row was "
            f"sent alone, and had answered just before: {error}"
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
    """Wake the lanes of these blocks: their rows are answered and may be released."""
    # A dictionary keeps the order of the rows, so that a simulation can be repeated exactly.
    for lane in dict.fromkeys(block.ticket.owner for block in blocks):
        lane.wake()
