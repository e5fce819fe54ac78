from penstock.core.order.jobs import Jobs, JobsByStream, JobsInOrder, Share
from penstock.core.routing.places import DEFAULT
from penstock.core.rows.blocks import Ticket
from tests.core.builders import ticket


def taken(jobs: Jobs) -> list[Ticket]:
    return [jobs.take(DEFAULT) for _ in range(len(jobs))]


def filled(jobs: Jobs, streams: str) -> list[Ticket]:
    tickets = [ticket(stream, offset) for offset, stream in enumerate(streams)]
    for one in tickets:
        jobs.add(one)
    return tickets


def test_without_shares_all_may_be_fetched_in_input_order() -> None:
    jobs = JobsInOrder()
    tickets = filled(jobs, "aabac")
    assert taken(jobs) == tickets
    jobs.delivered(tickets[0])
    assert jobs.in_work == 4


def test_a_stream_has_its_share_of_the_fetchers() -> None:
    jobs = JobsByStream(Share(fetching=2, in_work=9))
    tickets = filled(jobs, "aaaab")
    assert taken(jobs) == [tickets[0], tickets[1], tickets[4]]
    jobs.fetched(tickets[1])
    assert taken(jobs) == [tickets[2]]


def test_a_stream_that_is_held_back_has_its_share_of_the_work() -> None:
    jobs = JobsByStream(Share(fetching=9, in_work=2))
    tickets = filled(jobs, "aaaab")
    assert taken(jobs) == [tickets[0], tickets[1], tickets[4]]
    assert jobs.in_work == 3
    for one in tickets[:2]:
        jobs.fetched(one)
    assert not len(jobs)
    jobs.delivered(tickets[0])
    assert taken(jobs) == [tickets[2]]
    assert jobs.in_work == 3


def test_what_waits_for_a_fetcher_is_in_work_already() -> None:
    jobs = JobsByStream(Share(fetching=1, in_work=3))
    filled(jobs, "aaaaa")
    assert (len(jobs), jobs.in_work) == (1, 3)


def test_all_are_fetched_in_the_end_and_nothing_is_kept_of_them() -> None:
    jobs = JobsByStream(Share(fetching=2, in_work=3))
    tickets = filled(jobs, "abac" * 10)
    order: list[Ticket] = []
    while found := taken(jobs):
        order += found
        for one in found:
            jobs.fetched(one)
            jobs.delivered(one)
    assert sorted(order, key=lambda one: one.record.offset) == tickets
    for stream in "abc":
        offsets = [one.record.offset for one in order if one.stream == stream]
        assert offsets == sorted(offsets)
    assert jobs.in_work == 0


def test_after_a_clear_nothing_waits() -> None:
    jobs = JobsByStream(Share(fetching=1, in_work=2))
    first, *_ = filled(jobs, "aaaa")
    jobs.take(DEFAULT)
    jobs.clear()
    jobs.fetched(first)
    jobs.delivered(first)
    assert not len(jobs)
