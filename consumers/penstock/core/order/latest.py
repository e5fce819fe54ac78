"""Which records come after a later one of their own stream?

Rule: only the last `most` streams are remembered, as strangers may invent any number of names; a
stream that was forgotten begins anew. Owner: the rekeyer.
"""

from collections import OrderedDict


class Latest:
    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._times: OrderedDict[str, int] = OrderedDict()

    def is_late(self, stream: str, at_ms: int) -> bool:
        """Also notes the time."""
        last_ms = self._times.get(stream, at_ms)
        self._times[stream] = max(last_ms, at_ms)
        self._times.move_to_end(stream)
        if len(self._times) > self._most:
            self._times.popitem(last=False)
        return at_ms < last_ms
