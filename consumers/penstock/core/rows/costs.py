"""What rows, blocks and messages cost in the byte budget, besides their payload.

Rule: measured on CPython 3.11, rounded up; a charge lasts as long as the thing is held. Owner:
blocks charge themselves, the lane charges messages.
"""

# What a row costs besides its payload until it is delivered: its answer and its share of a record.
ROW_COST_BYTES = 128
# The part of it for a short answer; the rest is for the Python objects around the answer.
ANSWER_BYTES = 80
# A block with its parts. Where good and bad rows alternate, there is one block a row.
BLOCK_COST_BYTES = 512
# A row's error, without its message.
ERROR_COST_BYTES = 256

# A reference of our own form with all its fields; few of them are held.
_SHORT_MESSAGE_BYTES = 512
# Bytes in memory for each byte of JSON, decoded. Measured: 24 for attributes of empty objects, 32
# for inline numbers, 9 for references and for ranges of rows, 2 for ordinary text.
_DECODED = 16
# A ticket and its reference.
_TICKET_COST_BYTES = 1_024


# So many objects of a partition take 1.5 MB, too little to count. More of them are owed only where
# order is kept per stream.
FEW_OBJECTS = 1_000


def message_cost(nbytes: int, objects: int, *, is_one_of_many: bool = False) -> int:
    """The cost of a message of `nbytes` that names `objects`. A short one is free, unless it
    `is_one_of_many` that are held.
    """
    long_bytes = max(0, nbytes - _SHORT_MESSAGE_BYTES)
    if is_one_of_many:
        return long_bytes * _DECODED + _SHORT_MESSAGE_BYTES + objects * _TICKET_COST_BYTES
    return long_bytes * _DECODED + max(0, objects - 1) * _TICKET_COST_BYTES
