"""What operators say about stopped lines, as text."""

import pytest

from penstock.core.progress.line_stop import (
    MOST_WORDS,
    Word,
    decode_words,
    encode_words,
    obeyed,
    stream_digest,
)

SKIP = Word("skip", 7, stream_digest("a"), 1)
ANYWHERE = Word("resume", None, stream_digest("b"), 2)


def test_words_are_read_as_they_were_said() -> None:
    words = [
        SKIP,
        ANYWHERE,
        SKIP._replace(until=99),
        *obeyed([SKIP._replace(number=3)], [SKIP._replace(number=3)]),
    ]
    assert decode_words(encode_words(words)) == words
    assert [word.is_done for word in words] == [False, False, False, True]


@pytest.mark.parametrize("text", ["", "l1:", "l1:skip", "l1:skip.g.0.0;x", "l2:skip.1.2.3"])
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    assert decode_words(text) == []


def test_a_text_of_the_most_words_fits_into_the_metadata_of_a_commit() -> None:
    longest = Word("resume", (1 << 63) - 1, "f" * 16, 16**14 - 1, is_done=True, until=(1 << 63) - 1)
    assert len(encode_words([longest] * (2 * MOST_WORDS))) <= 4_000


def test_of_too_many_words_those_that_were_obeyed_go_first() -> None:
    words = [SKIP._replace(number=number, is_done=number % 2 == 0) for number in range(60)]
    kept = decode_words(encode_words(words))
    assert len(kept) == MOST_WORDS
    assert [word for word in kept if not word.is_done] == words[1::2]
