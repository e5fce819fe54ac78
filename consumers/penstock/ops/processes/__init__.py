"""Several workers under one supervisor, which starts, watches and replaces them, and shows them on
one page.
"""
