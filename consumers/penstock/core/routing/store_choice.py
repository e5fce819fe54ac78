"""Which store has the object that a reference names?

Rule: the reference itself (a store's name, or the scheme of its URL); then the routes, in order;
then the store whose `url` names the bucket most exactly; `[objects]` takes any. A reference that
fits no store is refused, never tried at another.
"""

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from penstock.errors import Poison

# The store of the section `[objects]`.
DEFAULT: Final = "objects"
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class ConfiguredStore:
    """A store, and the objects that it is for. `account`: the account at Azure, where buckets of
    two accounts may have one name. `bucket`: a glob. `routes`: globs of `bucket/key`.
    """

    name: str
    scheme: str
    bucket: str = "*"
    account: str | None = None
    routes: tuple[str, ...] = ()


class _Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]


class StoreChoice:
    """`of` names the store of an object."""

    def __init__(
        self, places: Sequence[ConfiguredStore], near: Collection[str] | None = None
    ) -> None:
        """`near`: the names of the stores that are preferred to all others; None: no store is
        preferred.
        """
        self._beyond = None if near is None else StoreChoice(places)
        places = [place for place in places if near is None or place.name in near]
        self._names = {place.name for place in places}
        self._routes = [
            _Rule(place.name, compiled(route)) for place in places for route in place.routes
        ]
        # Literal names come before globs, and a glob with a longer literal beginning comes before a
        # shorter one.
        self._exactly = sorted(places, key=lambda place: -_exactness(place.bucket))
        # If `[objects]` is the only store, a reference that names no store needs no search.
        self.is_plain = [(place.name, place.bucket) for place in places] == [(DEFAULT, "*")]

    @classmethod
    def one(cls) -> Self:
        """The choice for a worker whose only store is `[objects]`."""
        return cls([ConfiguredStore(DEFAULT, "s3")])

    def of(self, store: str | None, bucket: str, key: str) -> str:
        """The name of the object's store. `store`: what the reference says, which is a store's
        name, a scheme or `scheme@account`; None: the reference says nothing. Raises `Poison` if no
        store fits.
        """
        try:
            return self._of(store, bucket, key)
        except Poison:
            if self._beyond is None:
                raise
        return self._beyond.of(store, bucket, key)

    def _of(self, store: str | None, bucket: str, key: str) -> str:
        if store is None:
            name = f"{bucket}/{key}"
            routed = next((rule.name for rule in self._routes if rule.pattern.match(name)), None)
            return routed or self._plain(bucket)
        scheme, _, account = store.partition("@")
        is_scheme = any(place.scheme == scheme for place in self._exactly)
        if store in self._names:
            if self._is_named_for(store, bucket, key):
                return store
            if not is_scheme:
                raise _not_for(store, bucket)
        return self._by_bucket(scheme, account or None, bucket)

    def _is_named_for(self, store: str, bucket: str, key: str) -> bool:
        """Is the named store for this object? A reference that names a store makes the worker use
        the store's credentials. So it must not read buckets that the store is not for.
        """
        name = f"{bucket}/{key}"
        by_url = any(_is_for(place, bucket) for place in self._exactly if place.name == store)
        by_route = (rule.pattern.match(name) for rule in self._routes if rule.name == store)
        return by_url or any(by_route)

    def _plain(self, bucket: str) -> str:
        """The store for a reference without a scheme. If a store of S3 fits, it is chosen, because
        `s3://` is left out as often as it is written.
        """
        fitting = [place for place in self._exactly if _is_for(place, bucket)]
        of_s3 = next((place.name for place in fitting if place.scheme == "s3"), None)
        if of_s3 is None and fitting:
            return fitting[0].name
        return of_s3 or self._by_bucket("s3", None, bucket)

    def _by_bucket(self, scheme: str, account: str | None, bucket: str) -> str:
        for place in self._exactly:
            is_account = None in (account, place.account) or account == place.account
            if place.scheme == scheme and is_account and _is_for(place, bucket):
                return place.name
        of_account = f" of the account {account}" if account else ""
        raise Poison(
            "not_allowed",
            f"no store is configured for {scheme}://{bucket}{of_account}; add a section "
            "[stores.NAME] with such a url, or correct the reference",
        )


def _not_for(store: str, bucket: str) -> Poison:
    return Poison(
        "not_allowed",
        f"the store {store} is not for the bucket {bucket}; correct the reference, or the url or "
        f"the route of [stores.{store}]",
    )


def _is_for(place: ConfiguredStore, bucket: str) -> bool:
    return fnmatch.fnmatchcase(bucket, place.bucket)


def _exactness(bucket: str) -> int:
    """How long the literal beginning of a glob is. A name without magic characters outranks all
    globs.
    """
    magic = _MAGIC.search(bucket)
    return magic.start() if magic else 1 << 16


def compiled(glob: str) -> re.Pattern[str]:
    """The pattern of a glob. `bucket` and `bucket/prefix/` match everything below them."""
    is_whole = "/" not in glob or glob.endswith("/")
    return re.compile(fnmatch.translate(f"{glob.rstrip('/')}/*" if is_whole else glob))
