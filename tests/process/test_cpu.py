"""How much of a processor a thread gets, by Linux's own counters."""

import time

from penstock.process.cpu import cores, cpu_now, quota


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
