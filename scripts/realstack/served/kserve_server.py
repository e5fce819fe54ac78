"""KServe's Python model server with the example models: `kserve_server.py HTTP GRPC`."""

import sys
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from rows_answers import FEATURES, answers, json_answers, strict_answers

INPUTS = [{"name": "x", "datatype": "FP32", "shape": [-1, FEATURES]}]
OUTPUTS = [
    {"name": "label", "datatype": "INT64", "shape": [-1]},
    {"name": "score", "datatype": "FP32", "shape": [-1]},
]


class RowsModel(Model):  # type: ignore[misc]
    """Speaks both protocols of KServe: Open Inference, and the older protocol with `{"instances":
    [...]}`.
    """

    strict = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        return INPUTS

    async def get_output_types(self) -> list[dict[str, Any]]:
        return [*OUTPUTS, {"name": "error", "datatype": "BYTES", "shape": [-1]}]

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if not isinstance(payload, InferRequest):
            return {"predictions": json_answers(payload["instances"], strict=self.strict)}
        return _response(payload, self.compute(payload.inputs[0].as_numpy()))

    def compute(self, rows: Any) -> dict[str, Any]:
        labels, scores, complaints = answers(rows)
        texts = np.array([text.decode() for text in complaints], object)
        return {"label": labels, "score": scores, "error": texts}


class StrictModel(RowsModel):
    strict = True

    async def get_output_types(self) -> list[dict[str, Any]]:
        return OUTPUTS

    def compute(self, rows: Any) -> dict[str, Any]:
        return dict(zip(("label", "score"), strict_answers(rows), strict=True))


def _response(request: InferRequest, named: dict[str, Any]) -> InferResponse:
    outputs = []
    kinds = {"label": "INT64", "score": "FP32", "error": "BYTES"}
    for name, values in named.items():
        output = InferOutput(name=name, shape=list(values.shape), datatype=kinds[name])
        output.set_data_from_numpy(values, binary_data=False)
        outputs.append(output)
    return InferResponse(
        model_name=request.model_name, infer_outputs=outputs, response_id=request.id
    )


if __name__ == "__main__":
    http, grpc = map(int, sys.argv[1:3])
    ModelServer(http_port=http, grpc_port=grpc, workers=1).start(
        [RowsModel("rows"), StrictModel("strict")]
    )
