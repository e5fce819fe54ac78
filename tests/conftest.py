"""What holds for every test."""

from hypothesis import HealthCheck, settings

# Tests count, they do not measure: a busy machine makes no example wrong.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")
