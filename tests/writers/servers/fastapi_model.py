"""Each value doubled, by FastAPI. `/predictions/STATUS-TIMES-ROW-...`: the first TIMES requests
with the row [ROW] (`any`: with any row) are refused with the status; `raise` for STATUS: the model
raises.
"""

from collections import Counter

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

app = FastAPI()
refused: Counter[str] = Counter()


@app.post("/slash/")
async def slash() -> list[int]:
    return []


@app.post("/typed")
async def typed(rows: list[list[int]]) -> list[int]:
    return [2 * row[0] for row in rows]


@app.post("/stream")
async def stream(request: Request) -> StreamingResponse:
    rows = await request.json()
    pieces = ["[", ",".join(str(2 * row[0]) for row in rows), "]"]
    return StreamingResponse(iter(pieces), status_code=207, media_type="application/json")


@app.post("/large")
async def large(request: Request) -> list[int]:
    if int(request.headers["content-length"]) > 1_000_000:
        raise HTTPException(413)
    return [2 * row[0] for row in await request.json()]


@app.post("/huge")
async def huge(rows: list[list[int]]) -> StreamingResponse:
    """More than 64 MiB for the row 5."""
    value = b"%d" % (2 * rows[0][0])
    is_huge = [5] in rows
    pieces = [b"["] + [b" " * (1 << 20)] * 65 * is_huge + [value]
    others = [b",%d" % (2 * row[0]) for row in rows[1:]]
    return StreamingResponse(iter([*pieces, *others, b"]"]), media_type="application/json")


@app.post("/short")
async def short(rows: list[list[int]]) -> list[int]:
    """No element for the row 5."""
    return [2 * row[0] for row in rows if row != [5]]


@app.post("/predictions/{plan}")
async def double(plan: str, request: Request) -> list[int]:
    status, times, row, _ = plan.split("-")
    rows = await request.json()
    is_meant = bool(rows) if row == "any" else [int(row)] in rows
    if is_meant and refused[plan] < int(times):
        refused[plan] += 1
        if status == "raise":
            raise ValueError(row)
        raise HTTPException(int(status), f"refused by {status}", {"Retry-After": "0"})
    return [2 * row[0] for row in rows]
