"""A broker and a model server that need no installation, for the demo and the tests."""
