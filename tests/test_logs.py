"""What a log shows of libraries that say the same thing without end."""

import logging

from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError

from penstock.logs import LASTING_S, MAX_TEXTS, REPEAT_S, Seldom


def record(name: str, text: str, value: object, at_s: float) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.ERROR, __file__, 1, text, (value,), None)
    made.created = at_s
    return made


def test_a_library_s_message_passes_once_a_minute_whatever_its_values() -> None:
    seldom = Seldom()
    times_s = [0.0, 0.1, REPEAT_S - 0.1, REPEAT_S, REPEAT_S + 1, 3 * REPEAT_S]
    passed_s = [
        at_s for at_s in times_s if seldom.filter(record("aiokafka.x", "no node %s", at_s, at_s))
    ]
    assert passed_s == [0.0, REPEAT_S, 3 * REPEAT_S]


def test_other_messages_and_other_places_are_not_held_back() -> None:
    seldom = Seldom()
    assert seldom.filter(record("aiokafka.x", "no node %s", 1, 0.0))
    assert seldom.filter(record("aiokafka.x", "no group %s", 1, 0.0))
    assert seldom.filter(record("aiokafka.y", "no node %s", 1, 0.0))


def test_our_own_messages_always_pass() -> None:
    seldom = Seldom()
    ours = record("penstock.worker.run_worker", "closed %s", 1, 0.0)
    assert all(seldom.filter(ours) for _ in range(3))


def test_messages_that_are_never_the_same_are_not_kept_for_ever() -> None:
    seldom = Seldom()
    for number in range(MAX_TEXTS + 1):
        seldom.filter(record("aiokafka.x", f"{number} %s", 1, 0.0))
    assert seldom.filter(record("aiokafka.x", "0 %s", 1, 1.0))


def test_an_error_that_a_library_gets_over_by_itself_is_told_only_while_it_lasts() -> None:
    """aiokafka logs this one as an error at the first start of every group."""
    seldom, loading = Seldom(), GroupCoordinatorNotAvailableError()
    text = "Group Coordinator Request failed: %s"
    times_s = [0.0, 0.1, 0.5, 400.0, 400.0 + LASTING_S / 2, 400.0 + LASTING_S, 411.0]
    records = [record("aiokafka.consumer", text, loading, at_s) for at_s in times_s]
    passed = [one for one in records if seldom.filter(one)]
    assert [(one.created, one.levelname) for one in passed] == [(400.0 + LASTING_S, "WARNING")]
    refused = record("aiokafka.consumer", text, GroupAuthorizationFailedError("g"), 500.0)
    assert seldom.filter(refused)
    assert refused.levelname == "ERROR"
