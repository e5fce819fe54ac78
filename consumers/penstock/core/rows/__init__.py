"""What travels between the stages: blocks of rows on the chain of their ticket."""
