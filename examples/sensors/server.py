"""A model server for rows: a JSON array of rows in, a JSON array with one answer for each out.

Each row is an object with the names of its columns. Put your model in the place of `score`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def score(row: dict[str, float | None]) -> dict[str, object]:
    temperature, pressure = row["temperature"], row["pressure"]
    if temperature is None or pressure is None:
        return {"error": "the sensor measured nothing"}  # this row is refused, its neighbours not
    return {"alarm": temperature > 80 and pressure > 2.5, "over": round(temperature - 80, 1)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the connection is used again

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = json.dumps([score(row) for row in rows]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


port = int(sys.argv[1]) if len(sys.argv) > 1 else 9001
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"http://127.0.0.1:{server.server_port}/score", flush=True)
server.serve_forever()
