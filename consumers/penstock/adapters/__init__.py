"""The only code that knows client libraries. Every error of a library leaves as one of
`penstock.errors`; every adapter of a port passes that port's contract suite.
"""
