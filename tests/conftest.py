"""What holds for every test."""

from hypothesis import settings

# Tests count, they do not measure: a busy machine makes no example wrong.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
