"""Stand-ins that need no installation: a broker and a model server, for the demo and the tests."""
