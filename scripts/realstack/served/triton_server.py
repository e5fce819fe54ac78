"""Triton with the example models, by NVIDIA's pytriton: `triton_server.py HTTP GRPC METRICS`."""

import sys
from typing import Any

import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from rows_answers import FEATURES, MOST_ROWS, answers, strict_answers

X = Tensor(name="x", dtype=np.float32, shape=(FEATURES,))
OUTPUTS = [
    Tensor(name="label", dtype=np.int64, shape=(1,)),
    Tensor(name="score", dtype=np.float32, shape=(1,)),
]


def rows(requests: list[Any]) -> list[dict[str, Any]]:
    return [_columns(("label", "score", "error"), answers(request["x"])) for request in requests]


def strict(requests: list[Any]) -> list[dict[str, Any]]:
    return [_columns(("label", "score"), strict_answers(request["x"])) for request in requests]


def _columns(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value.reshape(-1, 1) for name, value in zip(names, values, strict=True)}


def main(http: int, grpc: int, metrics: int) -> None:
    settings = TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_address="127.0.0.1",
        grpc_port=grpc,
        metrics_port=metrics,
        log_verbose=0,
        exit_on_error=True,
    )
    # Rows arrive in batches, so to wait here for more rows would only add delay.
    config = ModelConfig(max_batch_size=MOST_ROWS, batching=True, batcher=DynamicBatcher())
    with Triton(config=settings) as triton:
        for model, extra in (
            (rows, [Tensor(name="error", dtype=np.bytes_, shape=(1,))]),
            (strict, []),
        ):
            triton.bind(
                model_name=model.__name__,
                infer_func=model,
                inputs=[X],
                outputs=[*OUTPUTS, *extra],
                config=config,
                strict=False,
            )
        triton.serve()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
