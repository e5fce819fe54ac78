"""A model server for pictures, as TF Serving and KServe speak: `{"instances": [{"b64": "..."}]}`.

It answers how bright each picture is. Put your network in the place of `look`.
"""

import base64
import io
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image, ImageStat


def look(row: dict[str, str]) -> dict[str, object]:
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(row["b64"]))).convert("L")
    except OSError as error:
        return {"error": f"no picture: {error}"}
    return {"brightness": round(ImageStat.Stat(picture).mean[0])}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the connection is used again

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = json.dumps({"predictions": [look(row) for row in body["instances"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


port = int(sys.argv[1]) if len(sys.argv) > 1 else 9002
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(f"http://127.0.0.1:{server.server_port}/look", flush=True)
server.serve_forever()
