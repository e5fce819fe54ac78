"""LitServe with the example models: `litserve_server.py HTTP`.

A plain JSON server: `POST /rows` and `POST /strict` take and answer an array, one element per row.
"""

import sys
from typing import Any

import litserve
from rows_answers import json_answers


class RowsApi(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        """LitServe calls this to load the model. There is nothing to do, because the import of
        `rows_answers` has loaded the model.
        """

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # typed, it is the query's
        return request

    def predict(self, rows: Any) -> Any:
        return json_answers(rows)

    def encode_response(self, answer: Any) -> Any:
        return answer


class StrictApi(RowsApi):
    def predict(self, rows: Any) -> Any:
        return json_answers(rows, strict=True)


if __name__ == "__main__":
    server = litserve.LitServer(
        [RowsApi(api_path="/rows"), StrictApi(api_path="/strict")], accelerator="cpu"
    )
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
