"""The only code that knows client libraries. An adapter turns every error of its library into one
of `penstock.errors`, and passes its port's contract suite.
"""
