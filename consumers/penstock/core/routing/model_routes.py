"""Which models answer an object?

Rule: the one that its reference names; else those of the first route that matches stream, bucket
and key; else the default. A split divides whole streams by their hash: the same model on every
worker and after every start, and a share that grows keeps the streams that it has.
"""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from zlib import crc32

# A message always names fewer objects than this.
_OBJECTS = 1 << 20
# The log names the routes that matched none of this many objects. With so many objects a route
# without a match is most likely a mistake.
UNMATCHED_AFTER = 1_000
# Shares are counted in steps of 0.01 percent.
PARTS = 10_000


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Which objects a route matches, and which models answer them. `stream`, `bucket` and `key` are
    globs (None: anything); each of the `models` answers every row. `split`: for other models, the
    percentage of streams that they answer instead.
    """

    models: tuple[str, ...]
    stream: str | None = None
    bucket: str | None = None
    key: str | None = None
    split: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """For the log: the route's globs and models."""
        globs = {"stream": self.stream, "bucket": self.bucket, "key": self.key}
        given = [f"{name} = {glob!r}" for name, glob in globs.items() if glob is not None]
        return f"{', '.join(given) or 'anything'} to {' and '.join(self.models)}"

    def model_of(self, stream: str) -> str:
        """The model to which the split assigns this stream."""
        place = int.from_bytes(blake2b(stream.encode(), digest_size=8).digest()) % PARTS
        begin = 0.0
        for model, percent in self.split.items():
            begin += percent * PARTS / 100
            if place < begin:
                return model
        return self.models[0]


class Routes:
    """`models`: all configured models, the default one first. `overrule`: the model that a
    reference names is ignored.
    """

    def __init__(
        self, models: Sequence[str], routes: Sequence[ModelRoute], *, overrule: bool = False
    ) -> None:
        self.overrule = overrule
        self.models = tuple(models)
        self.default = self.models[0]
        self.routes = tuple(routes)
        self.is_needed = len(self.models) > 1  # is there anything to choose from?
        # May an object be answered by several models?
        self.fans_out = any(len(route.models) > 1 for route in self.routes)
        # How many objects were asked about. `unmatched`: the routes that matched none of them.
        self.asked = 0
        self.unmatched = dict(enumerate(self.routes))
        self._globs = [
            [_compiled(glob) for glob in (route.stream, route.bucket, route.key)]
            for route in routes
        ]

    def __str__(self) -> str:
        """For the log: the shares that are in force."""
        shares = [
            f"{route.stream or '*'} to {' and '.join(route.models)}"
            + "".join(f", {percent:g} % to {model}" for model, percent in route.split.items())
            for route in self.routes
        ]
        return "; ".join([*shares, f"else to {self.default}"])

    @property
    def never_matched(self) -> list[ModelRoute]:
        """The routes that matched none of the objects. Empty until `UNMATCHED_AFTER` objects were
        asked about.
        """
        return list(self.unmatched.values()) if self.asked >= UNMATCHED_AFTER else []

    def of(self, stream: str, bucket: str | None, key: str | None) -> tuple[str, ...]:
        """The models that each answer every row, in the route's order."""
        number = self.route_of(stream, bucket, key)
        if number is None:
            return (self.default,)
        route = self.routes[number]
        return (route.model_of(stream),) if route.split else route.models

    def route_of(self, stream: str, bucket: str | None, key: str | None) -> int | None:
        """The place of the route that decides. None: the default model answers."""
        self.asked += 1
        for number, globs in enumerate(self._globs):
            if all(map(_matches, globs, (stream, bucket, key))):
                self.unmatched.pop(number, None)
                return number
        return None


def _compiled(glob: str | None) -> re.Pattern[str] | None:
    return None if glob is None else re.compile(fnmatch.translate(glob))


def _matches(glob: re.Pattern[str] | None, name: str | None) -> bool:
    """Does the glob match? Inline rows have no bucket and no key, so a glob of a bucket or key
    never matches inline rows.
    """
    return glob is None or (name is not None and glob.match(name) is not None)


def place_of(object_index: int, model: str) -> int:
    """If several models answer an object, the answers of each have a place of their own in the
    ledger. Returns the place for `model`. It depends on the model's name, not on its position in a
    route, because routes change, and deliveries of one model must not count for another.
    """
    return ((crc32(model.encode()) & 0x7FFF) + 1) * _OBJECTS + object_index
