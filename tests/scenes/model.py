"""What a site should say, written down as slowly and obviously as possible: for grids.

It keeps every id it has ever seen and looks at everything again after every event.
"""

from dataclasses import dataclass, field

from consumers.scenes.arrival import Arrival
from consumers.scenes.members import FORGOTTEN_AFTER
from consumers.scenes.rules import Rules


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
        for member in list(self.heard):
            silence = self.now - self.heard[member]
            if silence > self.rules.lease_ms:
                self.evicted.add(member)
            is_listed = self.name in self.rules.listed
            if silence > FORGOTTEN_AFTER * self.rules.lease_ms and not is_listed:
                del self.heard[member], self.said[member]
                self.evicted.discard(member)

    def meet(self, member: str, time: int | None) -> str | None:
        listed = self.rules.listed.get(self.name)
        if listed is not None and not self.heard:
            self.heard = dict.fromkeys(listed, self.now)
            self.said = dict.fromkeys(listed)
        if member not in self.heard:
            if listed is not None:
                return "stranger"
            if len(self.heard) >= self.rules.max_members:
                return "crowded"
            self.newest_member = self.now
        self.heard[member] = self.now
        self.said[member] = self.said.get(member) if time is None else time
        self.evicted.discard(member)
        return None

    def misplaced(self, arrival: Arrival, member: str, time: int | None) -> str | None:
        if time is None:
            return "no_time"
        if time - arrival.recorded_ms > self.rules.ahead_ms or self.is_alone(
            member, time, arrival.recorded_ms
        ):
            return "ahead"
        distance = min(time % self.rules.period_ms, -time % self.rules.period_ms)
        return "off_grid" if distance > self.rules.tolerance_ms else None

    def is_alone(self, member: str, time: int, recorded: int) -> bool:
        """All others who were heard of late are far behind it, and they are two at least; and it
        is not of the time when Kafka got it.
        """
        limit = self.rules.deadline_ms + self.rules.ahead_ms
        if recorded - time <= limit:
            return False
        reached = [
            said
            for other, said in self.said.items()
            if other != member
            and said is not None
            and self.now - self.heard[other] <= self.rules.deadline_ms
        ]
        return len(reached) >= 2 and all(time - said > limit for said in reached)

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
            if len(self.slots) >= self.rules.max_open:
                if slot < min(self.slots):
                    self.refused.append((arrival.id, "overload"))
                    return
                self.publish(min(self.slots), "deadline")
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
        while self.slots:
            last = max(self.slots)
            members = list(self.slots[last].ids)
            if len(members) > 1:
                break
            slot = self.slots[last]
            if not self.is_alone(members[0], slot.times[members[0]], slot.recorded[members[0]]):
                break
            self.refused.append((self.slots[last].ids[members[0]], "ahead"))
            del self.slots[last]
        while self.slots and (why := self.reason(min(self.slots))):
            self.publish(min(self.slots), why)

    def reason(self, time: int) -> str | None:
        slot, rules = self.slots[time], self.rules
        expected = set(self.heard) - self.evicted
        is_learning = (
            self.name not in rules.listed and self.now < self.newest_member + rules.deadline_ms
        )
        if expected <= set(slot.ids) and not is_learning:
            return "complete"
        if self.now - slot.start >= rules.patience_ms and len(slot.ids) >= rules.quorum:
            return "quorum"
        said = [self.said[member] for member in expected]
        times = sorted((each for each in said if each is not None), reverse=True)
        passed = times[1] if len(times) > 1 else times[0] if times else None
        if passed is not None and passed - time >= rules.deadline_ms:
            return "deadline"
        return "deadline" if self.now - slot.start >= rules.deadline_ms else None

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
