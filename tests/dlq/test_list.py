"""`penstock dlq list`: letters that are alike are one line, and the newest are shown."""

import io

from rich.console import Console

from penstock.messages.dead_letter import DeadLetter
from penstock.messages.prediction import ObjectId, Source
from penstock.tools.dlq.letters import Filed, LetterPlace
from penstock.tools.dlq.list_and_resume import KEPT, LetterListing


def letter(number: int, *, key: str = "a.csv", message: str = "null in row") -> Filed:
    found = DeadLetter(
        code="model_rejected",
        stage="predict",
        message=message,
        attempts=1,
        stream="cam",
        source=Source("refs", 0, number),
        object_index=0,
        object=ObjectId("b", key, None),
        member=None,
        rows=((number, number + 1),),
        event_time=None,
        failed_at=1_000 * number,
        model="rows",
        reference=None,
    )
    return Filed(LetterPlace(0, number), found, b"")


def shown(listing: LetterListing) -> list[str]:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(listing.render())
    return captured.get().splitlines()


def test_letters_that_are_alike_are_one_line_with_their_number() -> None:
    listing = LetterListing(50)
    for number in range(50):
        listing.add(letter(number))
    listing.add(letter(50, message="another"))
    lines = [line for line in shown(listing) if "model_rejected" in line]
    assert len(lines) == 2
    assert "49 and 49 more like it" in lines[0]
    assert "0/49" in lines[0]
    assert "another" in lines[1]


def test_the_newest_lines_are_shown_and_the_others_counted() -> None:
    listing = LetterListing(2)
    for number in range(KEPT + 100):
        listing.add(letter(number, key=f"{number}.csv"))
    lines = shown(listing)
    assert [line.count(".csv") for line in lines].count(1) == 2
    assert all(any(f"{KEPT + n}.csv" in line for line in lines) for n in (98, 99))
    assert any(f"{KEPT + 98:,} older ones are not shown" in line for line in lines)
