"""How much of a processor a thread gets, by Linux's own counters."""

import time

from penstock.process.cpu import MEMORY_S, BusyShare, cores, cpu_now, quota


def test_work_is_counted_and_sleep_is_not() -> None:
    begin, until_s = cpu_now(), time.thread_time() + 0.05
    while time.thread_time() < until_s:
        pass
    worked = cpu_now()
    assert worked.worked_s - begin.worked_s >= 0.04
    time.sleep(0.05)
    slept = cpu_now()
    assert slept.worked_s - worked.worked_s < 0.05
    assert slept.waited_s >= begin.waited_s


def test_the_machine_is_told() -> None:
    now = cpu_now()
    assert cores() >= 1
    assert 0 <= now.stolen <= now.ticks
    assert 0 <= now.throttled <= now.periods or quota() is None


def test_the_share_follows_what_the_thread_spends() -> None:
    busy, begin_s = BusyShare(), time.monotonic()
    busy.share(begin_s)
    until_s = time.thread_time() + 0.05
    while time.thread_time() < until_s:
        pass
    spent_s = sum(cpu_now()[:2])
    # As if so much time had passed as the thread has spent: it was busy all the time.
    assert busy.share(begin_s + MEMORY_S) > 0.04
    assert busy.share(begin_s + 2 * MEMORY_S) <= sum(cpu_now()[:2]) - spent_s + 0.1
