"""The largest number of streams that holds: found by halving, then proven.

Rule: trials are noisy. A miss counts only if it happens twice, and a number found by short trials
is only a candidate. The result is the largest candidate that a long run proves. Owner: `bench
streams`.
"""

from collections.abc import Awaitable, Callable

# After a failed proof the candidate shrinks by this share: closer numbers differ by less than the
# noise.
STEP_DOWN = 0.05
MAX_PROOFS = 4

Holds = Callable[[int], Awaitable[bool]]


async def bisect(holds: Holds, most: int, first: int) -> int:
    """The largest N up to `most` that holds, if holding is monotone; 0 if none does."""
    low, high, trial = 0, most + 1, min(first, most)
    while high - low > 1:
        if await holds(trial) or await holds(trial):
            low = trial
        else:
            high = trial
        trial = (low + high) // 2
    return low


async def prove(proves: Holds, candidate: int) -> int:
    """The candidate if it is proven, else the next lower one that is; 0 after a few tries."""
    for _ in range(MAX_PROOFS):
        if candidate < 1:
            break
        if await proves(candidate):
            return candidate
        candidate -= max(1, round(candidate * STEP_DOWN))
    return 0
