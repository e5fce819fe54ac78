"""What a site should say where scenes are not on a grid: by a leader, or by the smallest span."""

from penstock.scenes.core.arrival import Arrival
from tests.scenes.model import Slot, SlowSite


class SlowNear(SlowSite):
    """As the model of the grid, but for which scene a prediction belongs to."""

    def misplaced(self, arrival: Arrival, member: str, time: int | None) -> str | None:
        why = super().misplaced(arrival, member, time)
        return None if why == "off_grid" else why

    def place(self, arrival: Arrival, member: str, time: int) -> None:
        near = [slot for slot in self.slots if abs(slot - time) <= self.rules.within_ms]
        free = [slot for slot in near if member not in self.slots[slot].ids]
        if near and not free:
            self.refused.append((arrival.id, "surplus"))
            return
        slot = self.smallest(free, time) if free else self.opened(arrival, member, time)
        if slot is None:
            return
        self.slots[slot].ids[member] = arrival.id
        self.slots[slot].times[member] = time
        self.slots[slot].recorded[member] = arrival.recorded_ms
        if member == self.rules.leader and self.keeps_order(slot, time):
            self.slots[time] = self.slots.pop(slot)

    def smallest(self, slots: list[int], time: int) -> int:
        spans = {}
        for slot in slots:
            times = [*self.slots[slot].times.values(), time]
            spans[slot] = max(times) - min(times)
        return min(slot for slot in slots if spans[slot] == min(spans.values()))

    def opened(self, arrival: Arrival, member: str, time: int) -> int | None:
        is_decided = any(time <= done + self.rules.within_ms for done in self.published)
        if is_decided or any(time <= slot for slot in self.slots if self.reason(slot)):
            self.too_late(arrival, member, time)
            return None
        if why := self.no_room(arrival, member, time, time):
            self.refused.append((arrival.id, why))
            return None
        self.slots[time] = Slot(self.now + max(0, time - arrival.recorded_ms))
        return time

    def keeps_order(self, slot: int, time: int) -> bool:
        """No scene, decided or not, changes sides."""
        others = [each for each in self.slots if each != slot]
        same_side = all((each < slot) == (each < time) and each != time for each in others)
        return same_side and all(time > done for done in self.published)

    def too_late(self, arrival: Arrival, member: str, slot: int) -> None:
        recent = sorted(self.published)[-self.rules.max_open :]
        for time in recent if self.rules.late == "amend" else ():
            is_near = abs(time - slot) <= self.rules.within_ms
            if is_near and member not in self.published[time]:
                super().too_late(arrival, member, time)
                return
        self.refused.append((arrival.id, "late"))
