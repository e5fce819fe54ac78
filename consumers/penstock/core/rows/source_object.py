"""The object that a ticket answers: which bytes are read, in which version, and how far.

Rule: rows that a former assignment delivered are skipped only if the same version is read by the
same rules. Owner: the ticket; the fetcher that has the ticket changes it.
"""

from penstock.core.progress import cursor
from penstock.core.progress.cursor import START
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.owner import Origin
from penstock.messages.reference import Inline, Reference


class SourceObject:
    """One object of one record. If it has neither a reference nor inline rows, its record names no
    object.
    """

    __slots__ = (
        "inline",
        "next_row",
        "object_index",
        "pin",
        "published_rows",
        "read_bytes",
        "record",
        "reference",
        "resume",
        "row_rules",
        "started",
        "store",
        "stream",
    )

    def __init__(
        self,
        record: Origin,
        object_index: int,
        stream: str,
        reference: Reference | None,
        inline: Inline | None,
        store: str,
    ) -> None:
        self.record = record
        self.object_index = object_index  # the object's number in the message
        self.stream = stream
        self.reference = reference  # None for inline rows
        self.inline = inline
        self.store = store  # the name of the store that has the object

        self.started = False  # a fetcher has taken the ticket
        self.pin: tuple[str | None, str | None] | None = None  # version id and entity tag read
        self.row_rules = ""  # the settings by which bytes become rows
        self.next_row = 0  # the first row that is not read yet
        self.read_bytes = 0  # by all tries together; the watchdog sees by it that reading goes on
        self.resume = START  # the rows that a former assignment delivered
        # Rows that are on the output topic already, but are answered again for the result object.
        self.published_rows = 0

    @property
    def version(self) -> str | None:
        """The version that is read: its id, else its entity tag; None before the first read."""
        version_id, etag = self.pin or (None, None)
        return version_id or etag

    @property
    def digest(self) -> str:
        """The digest of the object's name, its version and the rules by which its bytes become
        rows. A cursor with another digest is not valid for this object.
        """
        if self.reference is None:
            return cursor.digest("inline", str(self.record.offset), self.row_rules)
        name = f"{self.reference.bucket}/{self.reference.key}"
        if self.store != DEFAULT:
            name = f"{self.store}:{name}"
        return cursor.digest(name, self.version, self.row_rules)

    def resumes(self, *, from_first_row: bool) -> bool:
        """Skip the rows that a former assignment delivered. Returns False if that assignment read
        another version. With `from_first_row` (for a result object) all rows are answered again,
        and only the records of the delivered rows are left out.
        """
        if self.next_row or not self.resume.row:
            return True
        if self.resume.version != self.digest:
            self.published_rows = 0
            return False
        if from_first_row:
            self.published_rows = self.resume.row
        else:
            self.next_row = self.resume.row
        return True
