"""Streams of a site as they come, made from a seed: wrong clocks, repeats, silence, floods."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from msgspec.json import encode

from penstock.scenes.core.arrival import Arrival
from penstock.scenes.core.rules import Rules

EPOCH = 1_795_208_217_400
HOUR = 3_600_000


@dataclass
class Camera:
    name: str
    clock: str
    lag: int
    burst: int
    skew: int
    rate: int
    dead: tuple[int, int]
    offset: int = 0

    def time(self, now: int, random: Random) -> int | None:
        at = now + self.skew + random.randint(-3, 3)
        wrong = random.random() < 0.5
        match self.clock:
            case "hour ahead":
                return at + HOUR
            case "1970":
                return at - EPOCH
            case "a little ahead":
                return at + 180
            case "jumps":
                return at + random.choice((0, -HOUR, HOUR, 300, -400))
            case "none" if wrong:
                return None
        return at


CLOCKS = ("right",) * 8 + ("hour ahead", "1970", "a little ahead", "jumps", "none")


def rules(random: Random) -> Rules:
    listed = {"s": [f"c{n}" for n in range(random.randint(1, 5))]} if random.random() < 0.4 else {}
    return Rules(
        period_ms=random.choice((50, 50, 40, 33)),
        tolerance_ms=random.choice((25, 10)),
        offsets_ms={"c1": -12} if random.random() < 0.5 else {},
        patience_ms=random.choice((100, 40, 600)),
        quorum=random.choice((0, 0, 2, 9)),
        deadline_ms=random.choice((500, 200)),
        ahead_ms=random.choice((250, 100)),
        lease_ms=random.choice((10_000, 700)),
        late=random.choice(("topic", "amend", "drop")),
        listed=listed,
        max_open=random.choice((64, 64, 5)),
        max_members=random.choice((256, 3)),
        forget_ms=random.choice((1 << 40, 1_000)),
    )


def arrival(
    camera: str, offset: int, row: int, time: int | None, recorded: int, error: bool = False
) -> Arrival:
    id = f"refs/{ord(camera[-1])}/{offset}/0/{row}"
    record = {
        "id": id,
        "stream": f"s/{camera}",
        "source": {"topic": "refs", "partition": ord(camera[-1]), "offset": offset},
        "row": row,
        "event_time": time,
        "prediction": None if error else {"label": 1},
    }
    if error:
        record["error"] = {"code": "bad_row", "message": "no"}
    return Arrival(
        id=id,
        stream=f"s/{camera}",
        feed=f"refs/{ord(camera[-1])}/s/{camera}",
        position=(offset, 0, row),
        time=time,
        recorded_ms=recorded,
        is_empty=False,
        value=encode(record),
    )


Event = tuple[int, str, Arrival | None]


def flow(random: Random, shape: Rules, ticks: int) -> Iterator[Event]:
    """(now, member, arrival), or a tick without one, in order of arrival. `now` may step back."""
    # Or what makes the predictions is behind, in each partition by another time, and hurries.
    is_behind = random.random() < 0.3
    cameras = [
        Camera(
            name=f"c{n}",
            clock=random.choice(CLOCKS),
            lag=random.choice((1_000, 1_100, 1_500, 2_500) if is_behind else (5, 20, 60, 150)),
            burst=random.choice((1, 100, 400)) if is_behind else 1,
            skew=random.randint(-20, 20),
            rate=random.choice((1, 1, 1, 1, 10)),
            dead=(at := random.randint(0, ticks * 2), at + random.randint(0, ticks // 2)),
        )
        for n in range(random.randint(1, 6))
    ]
    # Live, or a replay of yesterday's, of which Kafka's clock says nothing.
    replay = random.choice((0, 24 * HOUR))
    events: list[Event] = []
    for step in range(ticks):
        due = EPOCH + step * (shape.period_ms or 50)
        after = random.choice((0, 1_000, 2_000)) if is_behind else 0
        events.append((due + replay + after + random.randint(0, 60), "", None))
        for camera in cameras:
            if not camera.dead[0] <= step < camera.dead[1] and random.random() > 0.03:
                events += _said(camera, due, replay, random)
    events.sort(key=lambda event: event[0])
    yield from _repeated(events, random)


def _said(camera: Camera, due: int, replay: int, random: Random) -> Iterator[Event]:
    recorded = -(-(due + replay) // camera.burst) * camera.burst + camera.lag
    time = camera.time(due, random)
    for row in range(random.choice((1, camera.rate))):
        camera.offset += 1
        error = random.random() < 0.05
        found = arrival(camera.name, camera.offset, row, time, recorded, error)
        jitter = random.randint(0, 10) if camera.burst == 1 else 0
        yield recorded + jitter, camera.name, found


def _repeated(events: list[Event], random: Random) -> Iterator[Event]:
    """Now and then the last records of all feeds come again, as after a crash of a worker."""
    last: dict[str, int] = {}
    kept: list[Event] = []
    for now, member, found in events:
        if found is not None:
            if found.position[0] < last.get(member, 0):
                continue  # a feed is in order
            last[member] = found.position[0]
        kept.append((now, member, found))
        yield now - random.choice((0, 0, 0, 30)), member, found
        if random.random() < 0.01:
            for _, again, old in kept[-random.randint(1, 30) :]:
                yield now, again, old
