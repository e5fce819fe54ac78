"""The judge who looks on while topics grow. That it agrees with the one who reads twice, every test
of this folder asks (`Topics.report`); here is what only it has.
"""

from penstock.tools.verify.read_topics import LiveJudge
from tests.verify.topics import Entry, Topics

ROWS = 40


def judge_of(topics: Topics, kept: int) -> LiveJudge:
    judge = LiveJudge(topics.scope(), kept=kept)
    judge.references(0, [Entry(offset, *ref) for offset, ref in enumerate(topics.refs[0])])
    judge.answers(0, [Entry(offset, *one) for offset, one in enumerate(topics.out)])
    return judge


def taken_over() -> Topics:
    """A worker died after its answers and before its commit; the next one gave them again."""
    topics = Topics(committed={0: 1})
    topics.answer(topics.ask(), range(ROWS), ROWS)
    topics.out.extend(list(topics.out))
    return topics


def test_a_repeat_is_compared_without_reading_again() -> None:
    topics = taken_over()
    report = judge_of(topics, kept=ROWS).report()
    assert report.ok
    assert report.duplicates == ROWS
    key, value = topics.out[-2]
    assert value is not None
    topics.out[-2] = (key, value.replace(b'"score":38.5', b'"score":39.5'))
    assert judge_of(topics, kept=ROWS).report().violated == {"differs": 1}


def test_a_repeat_whose_first_answer_is_no_longer_known_is_no_proof() -> None:
    assert "bad_end" in judge_of(taken_over(), kept=ROWS // 2).report().violated


def test_what_is_kept_does_not_grow() -> None:
    topics = Topics()
    for number in range(30):
        topics.answer(topics.ask(f"{number}"), range(ROWS), ROWS, name=f"{number}")
    judge = judge_of(topics, kept=100)
    assert [len(partition._values) for partition in judge._partitions.values()] == [100]
    assert [partition._by_id for partition in judge._partitions.values()] == [None]
    assert judge.report().rows == 30 * ROWS
