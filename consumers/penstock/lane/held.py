"""What one lane holds of the byte budget: rows, and the messages that named them.

Rule: all that is spent here is refunded here, the rest at once when the lane closes. Owner: the
lane.
"""

from penstock.lane.budget import Budget


class Held:
    """`messages_bytes` is the part that long messages take."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0
        self.messages_bytes = 0

    def spend(self, nbytes: int) -> None:
        self._bytes += nbytes
        self._budget.spend(nbytes)

    def spend_on_messages(self, nbytes: int) -> None:
        self.spend(nbytes)
        self.messages_bytes += nbytes
        self._budget.messages_bytes += nbytes

    def refund(self, rows_bytes: int, messages_bytes: int) -> None:
        self.messages_bytes -= messages_bytes
        self._budget.messages_bytes -= messages_bytes
        self._bytes -= rows_bytes + messages_bytes
        self._budget.refund(rows_bytes + messages_bytes)

    def refund_all(self) -> None:
        self.refund(self._bytes - self.messages_bytes, self.messages_bytes)
