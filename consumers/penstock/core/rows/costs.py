"""What rows and blocks cost in the byte budget, besides their payload.

Rule: the costs were measured on CPython 3.11 and rounded up. A charge lasts as long as the row or
block is held. Owner: the blocks, which charge themselves.
"""

# What a row costs until it is delivered: its answer, and its part of a record.
ROW_COST_BYTES = 128
# The part of `ROW_COST_BYTES` that is for a short answer. The other part is for the Python objects
# around the answer.
ANSWER_BYTES = 80
# A block and its parts. Where good and bad rows alternate, each row is a block.
BLOCK_COST_BYTES = 512
# A row's error, without its message.
ERROR_COST_BYTES = 256
