"""MLServer with the example models: `mlserver_server.py HTTP GRPC METRICS`.

`parallel_workers` is 0. By default MLServer has one process for each model, but MLServer 1.7 then
crashes with the current release of uvloop.
"""

import asyncio
import sys
from typing import Any

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.settings import Settings
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor
from rows_answers import FEATURES, answers, strict_answers

INPUTS = [MetadataTensor(name="x", datatype="FP32", shape=[-1, FEATURES])]
OUTPUTS = [
    MetadataTensor(name="label", datatype="INT64", shape=[-1]),
    MetadataTensor(name="score", datatype="FP32", shape=[-1]),
]


class RowsModel(MLModel):  # type: ignore[misc]
    def compute(self, rows: Any) -> list[Any]:
        labels, scores, complaints = answers(rows)
        texts = [text.decode() for text in complaints]
        return [*_numbers(labels, scores), StringCodec.encode_output("error", texts)]

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = self.compute(NumpyCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)


class StrictModel(RowsModel):
    def compute(self, rows: Any) -> list[Any]:
        return _numbers(*strict_answers(rows))


def _numbers(labels: Any, scores: Any) -> list[Any]:
    named = {"label": labels.astype(np.int64), "score": scores}
    return [NumpyCodec.encode_output(name, values) for name, values in named.items()]


async def main(http: int, grpc: int, metrics: int) -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        parallel_workers=0,
        debug=False,
    )
    error = MetadataTensor(name="error", datatype="BYTES", shape=[-1])
    await MLServer(settings).start(
        [
            ModelSettings(
                name=name, implementation=model, inputs=INPUTS, outputs=[*OUTPUTS, *extra]
            )
            for name, model, extra in (("rows", RowsModel, [error]), ("strict", StrictModel, []))
        ]
    )


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
