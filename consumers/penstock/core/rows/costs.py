"""What rows and blocks cost in the byte budget, besides their payload.

Rule: measured on CPython 3.11, rounded up; a charge lasts as long as the thing is held. Owner:
blocks, which charge themselves.
"""

# What a row costs besides its payload until it is delivered: its answer and its share of a record.
ROW_COST_BYTES = 128
# The part of it for a short answer; the rest is for the Python objects around the answer.
ANSWER_BYTES = 80
# A block with its parts. Where good and bad rows alternate, there is one block a row.
BLOCK_COST_BYTES = 512
# A row's error, without its message.
ERROR_COST_BYTES = 256
