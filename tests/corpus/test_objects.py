"""Every hostile object between good ones: answered as its table says, and nobody else suffers."""

import pytest

from penstock.core.rows.payload import Form
from penstock.tools.simulation.virtual_time import virtual_time
from tests.corpus.archives import ARCHIVES
from tests.corpus.cases import Stored, words
from tests.corpus.media import MEDIA
from tests.corpus.objects import OBJECTS
from tests.corpus.pictures import PICTURES
from tests.corpus.running import check_answer
from tests.corpus.tables import TABLES

FORMS: list[Form] = ["matrix", "json"]
CASES = [*OBJECTS, *ARCHIVES, *PICTURES, *MEDIA, *TABLES]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@virtual_time
async def test_a_hostile_object_is_answered_and_its_neighbours_are_delivered(
    case: Stored, form: Form
) -> None:
    await check_answer(case, form)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_word_is_one_that_can_be_said() -> None:
    assert all(words(case.answer) for case in CASES)
