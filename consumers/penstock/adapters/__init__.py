"""The only code that knows client libraries. An adapter turns every error of its library into one
of `penstock.errors`. Every adapter of a port passes that port's contract suite.
"""
