"""The bodies of objects: broken transfers are resumed, slow ones are watched, and all are checked
against the pin, which is a version id or an entity tag.

Rule: bytes are used only if they are certainly the next bytes of the same object.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Self, TypeVar

from penstock.adapters.stores.names import name
from penstock.adapters.stores.refusals import implausible_answer
from penstock.errors import Poison, Transient, Unreachable
from penstock.ports import Location, Part

T = TypeVar("T")

CHUNK_BYTES: Final = 1 << 20
# An object up to this size is read into memory as a whole, because that is cheaper than a stream.
# This size is small compared with the byte budget (256 MiB).
WHOLE_BYTES: Final = 8 << 20
CONNECT_TIMEOUT_S: Final = 5.0
# The limit is for the silence, not for the duration: a body whose reader waits for room may take
# hours.
READ_TIMEOUT_S: Final = 30.0

# A chunk may take this many read timeouts. If it takes longer, the body is read in small chunks, so
# that progress can be seen. If a small chunk takes longer, too, the transfer fails (64 KiB in 60 s:
# 1 kB/s).
SLOW_SILENCES: Final = 2
SLOW_CHUNK_BYTES: Final = 64 << 10

# A transfer that makes no progress is resumed this many times, after pauses of 0.05, 0.2 and 0.8 s.
# These outlast the restart of a proxy; for longer outages the caller waits.
RESUMES_WITHOUT_PROGRESS: Final = 3
FIRST_PAUSE_S: Final = 0.05
PAUSE_GROWTH: Final = 4


def pin_of(etag: str | None) -> str | None:
    """Returns the version id or the entity tag, or None if it identifies no version. Stores with
    suspended versioning call every version `null`.
    """
    return None if etag in (None, "", "null") else etag


def wants_etag(location: Location) -> bool:
    """True if the entity tag should be the pin. A version id is the better pin, unless it is
    `null`.
    """
    return location.etag is not None and pin_of(location.version_id) is None


def quoted(etag: str) -> str:
    """The entity tag as a condition needs it. HTTP demands quotes there, but notifications leave
    them out. The mark of a weak tag is removed, because a server must refuse weak tags in
    conditions. Raises `Poison` for a text that a header cannot hold, because no object has such a
    tag.
    """
    if not (etag.isascii() and etag.isprintable()):
        raise Poison("changed", f"{etag[:40]!a} is not an entity tag")
    return f'"{bare(etag)}"'


def bare(etag: str) -> str:
    """An entity tag without quotes and without the mark of a weak tag."""
    return etag.removeprefix("W/").strip('"')


async def resuming(
    size: int,
    read_from: Callable[[int, bool], AsyncGenerator[bytes]],
    location: Location,
    slow_s: float,
) -> AsyncGenerator[bytes]:
    """Yields all `size` bytes; a transfer that breaks is resumed where it broke. `read_from`: a
    function that reads from an offset, under the same pin. Its second argument is True after a
    chunk took longer than `slow_s`; the function then reads in small chunks.
    """
    done = failures = 0
    is_slow = False
    while done < size:
        try:
            async with aclosing(read_from(done, is_slow)) as chunks:
                while (chunk := await _within(slow_s, chunks)) is not None:
                    if done + len(chunk) > size:
                        raise implausible_answer(location, f"more than its {size} bytes")
                    done += len(chunk)
                    failures = 0
                    yield chunk
            if done < size:
                raise Unreachable(f"{name(location)}: the transfer ended at byte {done} of {size}")
        except TimeoutError:
            if is_slow:
                raise Transient(
                    f"{name(location)}: less than {SLOW_CHUNK_BYTES} bytes came in {slow_s:g} s"
                ) from None
            is_slow = True
        except Transient:
            failures += 1
            if failures > RESUMES_WITHOUT_PROGRESS:
                raise
            await asyncio.sleep(FIRST_PAUSE_S * PAUSE_GROWTH ** (failures - 1))


class ResumedBody:
    """An answer whose body is read once. If the transfer breaks off, the rest of the body is asked
    for under the same pin.
    """

    def __init__(
        self,
        location: Location,
        size: int,
        etag: str | None,
        version_id: str | None,
        read_timeout_s: float,
    ) -> None:
        self.size = size
        self.etag = pin_of(etag)
        self.version_id = pin_of(version_id)
        self._location = location
        self._slow_s = SLOW_SILENCES * read_timeout_s
        self._chunks: AsyncGenerator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = resuming(self.size, self._read_from, self._location, self._slow_s)
        return self._chunks

    def _read_from(self, offset: int, is_slow: bool) -> AsyncGenerator[bytes]:
        raise NotImplementedError

    def _check_pinned(self) -> None:
        if self.etag is None and self.version_id is None:
            raise Unreachable(
                f"{name(self._location)}: the transfer broke, and without an ETag it cannot go on"
            )

    def _drop(self) -> None:
        """Close the answer, if it is not read to its end."""
        raise NotImplementedError

    async def aclose(self) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()
        self._drop()


class WholeBody:
    """A body that was read already. It is one chunk, or none if the object is empty."""

    __slots__ = ("_given", "data", "etag", "version_id")

    def __init__(self, data: bytes, etag: str | None, version_id: str | None) -> None:
        self.data = data
        self.etag = etag
        self.version_id = version_id
        self._given = not data

    @property
    def size(self) -> int:
        return len(self.data)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._given:
            raise StopAsyncIteration
        self._given = True
        return self.data

    async def aclose(self) -> None:
        return


async def read_part(
    location: Location, nbytes: int, chunks: AsyncIterator[Any], slow_s: float
) -> bytes:
    """The chunks of a part that has `nbytes`. What an answer says of its range does not bound its
    body. Raises `Transient` if there are more, or if one does not come in time.
    """
    data = bytearray()
    try:
        while (chunk := await _within(slow_s, chunks)) is not None:
            data += chunk
            if len(data) > nbytes:
                raise implausible_answer(location, f"more than the {nbytes} bytes of its range")
    except TimeoutError:
        raise Transient(f"{name(location)}: no chunk came in {slow_s:g} s") from None
    return bytes(data)


async def _within(slow_s: float, chunks: AsyncIterator[T]) -> T | None:
    async with asyncio.timeout(slow_s):
        return await anext(chunks, None)


async def repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `attempt`. After a `Transient` error, `attempt` is called again, a few
    times.
    """
    failures = 0
    while True:
        try:
            return await attempt()
        except Transient:
            failures += 1
            if failures > RESUMES_WITHOUT_PROGRESS:
                raise
        await asyncio.sleep(FIRST_PAUSE_S * PAUSE_GROWTH ** (failures - 1))


def span_of(start: int, stop: int | None, size: int) -> tuple[int, int]:
    """The half-open range in an object of `size` bytes. A negative `start` counts from the object's
    end.
    """
    first = max(0, size + start) if start < 0 else start
    return first, size if stop is None else min(stop, size)


def span_within(location: Location, start: int, stop: int | None, size: int) -> tuple[int, int]:
    """Like `span_of`. Raises `Poison` if the range holds no byte of the object, unless the object
    is empty.
    """
    first, last = span_of(start, stop, size)
    if first >= last and size:
        raise Poison("changed", f"{name(location)}: it has no byte {first}")
    return first, last


def check_part(part: Part, location: Location, start: int, stop: int | None) -> Part:
    """Raises `Transient` unless exactly the requested bytes came. `Unreachable` would be wrong,
    because the store answers. After `Transient`, the object is tried again for two minutes and then
    rejected.
    """
    first, last = span_of(start, stop, part.size)
    if len(part.data) != max(0, last - first):
        raise Transient(
            f"{name(location)}: asked for bytes {first} to {last} of {part.size}, "
            f"{len(part.data)} came"
        )
    return part


def check_pin(location: Location, etag: str | None) -> None:
    """Compare the entity tag ourselves, because some stores ignore `If-Match`. Some stores and
    proxies send the tag without quotes or mark it as weak. It still counts as the same tag.
    """
    wanted = location.etag if wants_etag(location) else None
    if wanted is None or etag is None or pin_of(etag) is None:
        return
    if bare(wanted) != bare(etag):
        raise Poison("changed", f"{name(location)}: it is no longer {wanted}")


def check_coding(location: Location, before: str | None, now: str | None) -> None:
    """Raises `Transient` if the rest is packed (Content-Encoding) and the object was not: some
    proxies pack what they pass on. Its bytes are others, though the range is right.
    """
    if before != now:
        raise implausible_answer(location, f"a part of it comes as {now}")


def check_rest(
    location: Location, asked: tuple[int, int], got: tuple[int, int], etags: tuple[Any, Any]
) -> None:
    """Raise an error unless the answer is the requested range of the same object. Stores and
    proxies that ignore `Range` send the whole object from its first byte.
    """
    if asked != got:
        raise Transient(
            f"{name(location)}: bytes {asked[0]}-{asked[1]} were asked for, the store sent "
            f"{got[0]}-{got[1]}; it, or a proxy before it, ignores Range"
        )
    before, now = map(pin_of, etags)
    if before is not None and now is not None and bare(before) != bare(now):
        raise Poison("changed", f"{name(location)}: it was replaced while it was read")
