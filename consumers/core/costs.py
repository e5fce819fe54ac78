"""What things take in the byte budget, besides the bytes that they are.

Rule: measured on CPython 3.11, rounded up; a charge is for as long as the thing is held. Owner:
blocks charge themselves, the lane charges messages.
"""

# What a row costs besides its payload until it is delivered: its answer and its share of a record.
ROW_COST_BYTES = 128
# What a short answer may have of it; the rest is the objects around it.
ANSWER_BYTES = 80
# A block and what it is made of; where good and bad rows alternate, there is one a row.
BLOCK_COST_BYTES = 512
# A row's error besides its message.
ERROR_COST_BYTES = 256

# A reference of our own form with all its fields; few of them are held.
_SHORT_MESSAGE_BYTES = 512
# What a byte of JSON becomes, decoded: 24 for attributes of empty objects, 32 for inline numbers, 9
# for references and for ranges of rows; 2 for ordinary text.
_DECODED = 16
# A ticket and its reference.
_TICKET_COST_BYTES = 1_024


# So many objects of a partition are few: 1.5 MB. More only wait where order is kept per stream.
FEW_OBJECTS = 1_000


def message_cost(nbytes: int, objects: int, *, is_one_of_many: bool = False) -> int:
    """Of a message of so many bytes that names so many objects; nothing for a short one, as long
    as few of them are held.
    """
    long_bytes = max(0, nbytes - _SHORT_MESSAGE_BYTES)
    if is_one_of_many:
        return long_bytes * _DECODED + _SHORT_MESSAGE_BYTES + objects * _TICKET_COST_BYTES
    return long_bytes * _DECODED + max(0, objects - 1) * _TICKET_COST_BYTES
