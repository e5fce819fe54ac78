"""How many examples a property is tried with: as many times those of the profile, so that each
profile, `quick` too, has its say.
"""

from hypothesis import settings


def examples(times: float) -> settings:
    return settings(max_examples=round(times * settings().max_examples))
