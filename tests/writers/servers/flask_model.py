"""Each value doubled, by Flask; the addresses are those of `fastapi_model.py`."""

import os
from collections import Counter

from flask import Flask, abort, jsonify, request

app = Flask(__name__)
refused: Counter[str] = Counter()


@app.post("/slash/")
def slash():
    return []


@app.post("/small")
def small():
    request.max_content_length = 20
    return [2 * row[0] for row in request.get_json()]


@app.post("/large")
def large():
    request.max_content_length = 1_000_000
    return [2 * row[0] for row in request.get_json()]


@app.post("/parsed")
def parsed():
    return [2 * row[0] for row in request.get_json()], 201


@app.post("/predictions/<plan>")
def double(plan):
    status, times, row, _ = plan.split("-")
    rows = request.get_json(force=True)
    is_meant = bool(rows) if row == "any" else [int(row)] in rows
    if is_meant and refused[plan] < int(times):
        refused[plan] += 1
        if status == "raise":
            raise ValueError(row)
        if status == "die":
            os._exit(1)
        try:
            abort(int(status))
        except LookupError:  # Flask has no page for this status
            return jsonify(error=f"refused by {status}"), int(status)
    return [2 * row[0] for row in rows]
