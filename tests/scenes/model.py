"""What a site should say, written down as slowly and obviously as possible: for grids.

It keeps every id it has ever seen and looks at everything again after every event.
"""

from dataclasses import dataclass, field

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import Rules


@dataclass
class Slot:
    start: int
    ids: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)


@dataclass
class SlowSite:
    name: str
    rules: Rules
    now: int = 0
    seen: set[str] = field(default_factory=set)
    heard: dict[str, int] = field(default_factory=dict)
    said: dict[str, int | None] = field(default_factory=dict)
    newest_member: int = 0
    slots: dict[int, Slot] = field(default_factory=dict)
    published: dict[int, dict[str, str]] = field(default_factory=dict)
    revisions: dict[int, int] = field(default_factory=dict)
    # (time, revision, closed_by, ids by member, absent members), and (id, reason).
    scenes: list[tuple[int, int, str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    reasons: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)

    def arrive(self, arrival: Arrival, member: str, now: int) -> None:
        self.now = max(self.now, now)
        if arrival.id in self.seen:
            return
        self.seen.add(arrival.id)
        self.leases()
        time = None if arrival.time is None else arrival.time
        if time is not None:
            time += self.rules.offsets_ms.get(member, 0)
        why = self.meet(member, time)
        if arrival.is_empty:
            pass
        elif why or (why := self.misplaced(arrival, member, time)):
            self.refused.append((arrival.id, why))
        else:
            assert time is not None
            self.place(arrival, member, time)
        self.close()

    def tick(self, now: int) -> None:
        self.now = max(self.now, now)
        self.leases()
        self.close()

    def leases(self) -> None:
        last = max(self.heard.values(), default=0)
        for member in list(self.heard):
            silence = self.now - self.heard[member]
            if silence > self.rules.lease_ms:
                self.evicted.add(member)
            is_listed = self.name in self.rules.listed
            is_long = (
                silence > self.rules.lease_ms and last - self.heard[member] > self.rules.forget_ms
            )
            if is_long and not is_listed:
                self.forget(member)

    def forget(self, member: str) -> None:
        del self.heard[member], self.said[member]
        self.evicted.discard(member)

    def order(self, member: str) -> int:
        return list(self.heard).index(member)

    def meet(self, member: str, time: int | None) -> str | None:
        listed = self.rules.listed.get(self.name)
        if listed is not None and not self.heard:
            self.heard = dict.fromkeys(listed, self.now)
            self.said = dict.fromkeys(listed)
        if self.heard and self.now - max(self.heard.values()) > self.rules.lease_ms:
            counts_as = min(self.now - max(self.heard.values()), self.rules.deadline_ms)
            over = max(self.heard.values()) + counts_as
            self.heard = {each: at + self.now - over for each, at in self.heard.items()}
            self.evicted = set()
            self.leases()
        if member not in self.heard:
            if listed is not None:
                return "stranger"
            if len(self.heard) == self.rules.max_members:
                silent = sorted(self.evicted, key=lambda each: (self.heard[each], self.order(each)))
                if not silent:
                    return "crowded"
                self.forget(silent[0])
            self.newest_member = self.now
        self.heard[member] = self.now
        self.said[member] = self.said.get(member) if time is None else time
        self.evicted.discard(member)
        return None

    def misplaced(self, arrival: Arrival, member: str, time: int | None) -> str | None:
        if time is None:
            return "no_time"
        if time - arrival.recorded_ms > self.rules.ahead_ms:
            return "ahead"
        distance = min(time % self.rules.period_ms, -time % self.rules.period_ms)
        return "off_grid" if distance > self.rules.within_ms else None

    def is_past(self, time: int, recorded: int) -> bool:
        return recorded - time > 1_000

    def is_beyond(self, member: str, time: int, recorded: int, since: int) -> bool:
        """All others who were heard of late, two at least, will be behind it still when its
        deadline is over, if each goes on a millisecond in a millisecond.
        """
        over = since + self.rules.deadline_ms
        reached = [
            said + over - self.heard[other]
            for other, said in self.said.items()
            if other != member
            and said is not None
            and since - self.heard[other] <= self.rules.deadline_ms
        ]
        is_first = len(reached) >= 2 and all(time > each for each in reached)
        return is_first and self.is_past(time, recorded)

    def is_led(self, time: int) -> bool:
        slot = self.slots[time]
        if len(slot.ids) != 1:
            return False
        (member,) = slot.ids
        return self.is_beyond(member, slot.times[member], slot.recorded[member], slot.start)

    def is_awaited(self, time: int) -> bool:
        slot, rules = self.slots[time], self.rules
        first = next(iter(slot.ids))
        coming = [
            member
            for member, said in self.said.items()
            if member not in slot.ids
            and member not in self.evicted
            and said is not None
            and 0 < time - said <= rules.lease_ms
        ]
        return bool(coming) and self.is_past(slot.times[first], slot.recorded[first])

    def no_room(self, arrival: Arrival, member: str, slot: int, time: int) -> str | None:
        """Why the prediction is refused, if it is; else there is room when this returns."""
        if len(self.slots) < self.rules.max_open:
            return None
        if self.is_beyond(member, time, arrival.recorded_ms, self.now):
            return "ahead"
        if self.is_led(max(self.slots)):
            self.dissolve(max(self.slots))
        elif slot < min(self.slots):
            return "overload"
        else:
            self.publish(min(self.slots), "deadline")
        return None

    def dissolve(self, time: int) -> None:
        (id,) = self.slots.pop(time).ids.values()
        self.refused.append((id, "ahead"))

    def place(self, arrival: Arrival, member: str, time: int) -> None:
        period = self.rules.period_ms
        below = time // period * period
        slot = below if time - below < period - period // 2 else below + period
        if slot in self.slots:
            if member in self.slots[slot].ids:
                self.refused.append((arrival.id, "surplus"))
                return
        elif any(slot <= done for done in self.published) or any(
            slot <= other for other in self.slots if self.reason(other)
        ):
            self.too_late(arrival, member, slot)
            return
        else:
            if why := self.no_room(arrival, member, slot, time):
                self.refused.append((arrival.id, why))
                return
            self.slots[slot] = Slot(self.now + max(0, time - arrival.recorded_ms))
        self.slots[slot].ids[member] = arrival.id
        self.slots[slot].times[member] = time
        self.slots[slot].recorded[member] = arrival.recorded_ms

    def too_late(self, arrival: Arrival, member: str, slot: int) -> None:
        recent = sorted(self.published)[-self.rules.max_open :]
        if self.rules.late == "amend" and slot in recent and member not in self.published[slot]:
            self.published[slot] = {**self.published[slot], member: arrival.id}
            self.revisions[slot] += 1
            why, absent = self.reasons[slot]
            absent.pop(member, None)
            revision = self.revisions[slot]
            self.scenes.append((slot, revision, why, dict(self.published[slot]), dict(absent)))
        else:
            self.refused.append((arrival.id, "late"))

    def close(self) -> None:
        led = [time for time in sorted(self.slots) if self.is_led(time)]
        for time in led:
            if self.now - self.slots[time].start >= self.rules.deadline_ms:
                self.dissolve(time)
        while self.slots and (why := self.reason(min(self.slots))):
            self.publish(min(self.slots), why)

    def reason(self, time: int) -> str | None:
        slot, rules = self.slots[time], self.rules
        expected = set(self.heard) - self.evicted
        is_learning = (
            self.name not in rules.listed and self.now < self.newest_member + rules.deadline_ms
        )
        if expected <= set(slot.ids) and not is_learning:
            return "complete" if set(self.heard) <= set(slot.ids) else "members"
        if self.is_led(time):
            return None
        is_over = self.now - slot.start >= rules.deadline_ms
        if self.is_awaited(time):
            return "deadline" if is_over else None
        if self.now - slot.start >= rules.patience_ms and len(slot.ids) >= rules.quorum:
            return "quorum"
        said = [self.said[member] for member in expected]
        times = sorted((each for each in said if each is not None), reverse=True)
        passed = times[1] if len(times) > 1 else times[0] if times else None
        if passed is not None and passed - time >= rules.deadline_ms:
            return "deadline"
        return "deadline" if is_over else None

    def publish(self, time: int, why: str) -> None:
        slot = self.slots.pop(time)
        absent = {
            member: "evicted" if member in self.evicted else "missing"
            for member in self.heard
            if member not in slot.ids
        }
        self.published[time] = dict(slot.ids)
        self.revisions[time] = 1
        self.reasons[time] = (why, absent)
        self.scenes.append((time, 1, why, dict(slot.ids), dict(absent)))
