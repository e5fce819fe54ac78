"""The messages and statuses of the Open Inference Protocol's gRPC service.

Rule: field numbers are those of `open_inference_grpc.proto` and, for the configuration, of Triton's
`model_config.proto`; other fields of answers are skipped. The classes are built at import, because
generated code would only work with matching protobuf versions.

The library says UNAVAILABLE if it cannot reach the server, and servers if they are too busy; the
text tells which. Only a status that the server sent can refuse rows: if a stream ends without one,
the server hung up, whatever code the library gives.
"""

import re
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.adapters.http.certificates import untrusted
from penstock.adapters.model_servers.oip.rest_calls import LOADING, raised
from penstock.adapters.model_servers.refusals import MEND, clean, denied, not_there
from penstock.errors import (
    HungUp,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    Unreachable,
    usage,
)

SERVICE: Final = "inference.GRPCInferenceService"
_PACKAGE: Final = "inference"
# The fields of each message, written `name number type`. A `*` stands for a repeated field, and a
# type with a capital is another message.
_MESSAGES: Final = {
    "ModelReadyRequest": "name 1 string, version 2 string",
    "ModelReadyResponse": "ready 1 bool",
    "ModelMetadataRequest": "name 1 string, version 2 string",
    "TensorMetadata": "name 1 string, datatype 2 string, shape 3 int64*",
    "ModelMetadataResponse": "name 1 string, inputs 4 TensorMetadata*, outputs 5 TensorMetadata*",
    "ModelConfigRequest": "name 1 string, version 2 string",
    "ModelConfig": "name 1 string, max_batch_size 4 int32",
    "ModelConfigResponse": "config 1 ModelConfig",
    "InferTensorContents": (
        "bool_contents 1 bool*, int_contents 2 int32*, int64_contents 3 int64*, "
        "uint_contents 4 uint32*, uint64_contents 5 uint64*, fp32_contents 6 float*, "
        "fp64_contents 7 double*, bytes_contents 8 bytes*"
    ),
    "InferTensor": (
        "name 1 string, datatype 2 string, shape 3 int64*, contents 5 InferTensorContents"
    ),
    "InferRequestedOutput": "name 1 string",
    "ModelInferRequest": (
        "model_name 1 string, model_version 2 string, id 3 string, inputs 5 InferTensor*, "
        "outputs 6 InferRequestedOutput*, raw_input_contents 7 bytes*"
    ),
    "ModelInferResponse": (
        "model_name 1 string, model_version 2 string, id 3 string, outputs 5 InferTensor*, "
        "raw_output_contents 6 bytes*"
    ),
}


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="penstock/open_inference.proto", package=_PACKAGE, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            field_name, number, kind = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind[0].isupper():
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    # This pool is our own. In the common pool, our messages would clash with those of the published
    # file, if a program also loads that file.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


MESSAGES: Final = _made()
# For each datatype: the field that holds the typed values of such a tensor.
CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}

_CODE: Final = grpc.StatusCode
# Texts of the library for a connection that failed, or broke.
_NO_CONNECTION: Final = re.compile(
    r"failed to connect|connection refused|name resolution|dns|handshake failed", re.IGNORECASE
)
_BROKEN: Final = re.compile(
    r"socket closed|reset by peer|goaway|broken pipe|eof|recvmsg", re.IGNORECASE
)
# Texts of the library for a stream that ended before the server's status.
_NO_STATUS: Final = re.compile(
    r"stream removed|rst_stream|received http2 header|compression bit|trailers", re.IGNORECASE
)
# Codes that a server can send, but that the library can also give by itself.
_ALSO_BY_LIBRARY: Final = (_CODE.INTERNAL, _CODE.UNKNOWN, _CODE.CANCELLED)
# The texts by which a message is refused as too large. The alternatives are, in this order, those
# of C core and Go, of Java, of .NET, of Rust.
_TOO_LARGE: Final = re.compile(
    r"larger than max|exceeds (?:the )?(?:configured )?max|too large|message size", re.IGNORECASE
)
# With these codes the server, or a gateway before it, refuses the token.
DENIED: Final = (_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED)
_BY_MODEL: Final = (
    # INTERNAL means an exception of the model in Triton and MLServer, and an uncaught exception in
    # KServe.
    _CODE.INTERNAL,
    _CODE.UNKNOWN,
    _CODE.INVALID_ARGUMENT,
    _CODE.OUT_OF_RANGE,
    _CODE.FAILED_PRECONDITION,
)


def refusal(code: grpc.StatusCode, reason: str, where: str) -> PenstockError:
    message = f"{where}: {code.name}: {clean(raised(reason))}"
    if untrusting := untrusted(reason, "model.ssl_cafile"):
        return usage(f"{where}: {untrusting}")
    if code in _ALSO_BY_LIBRARY and (not reason.strip() or _NO_STATUS.search(reason)):
        # The library has given the code by itself, or the text is empty. So the server has said
        # nothing about the rows.
        return HungUp(message)
    if code is _CODE.UNAVAILABLE:
        if _NO_CONNECTION.search(reason):
            return Unreachable(message, mend=MEND)
        return HungUp(message) if _BROKEN.search(reason) else Overloaded(message)
    if code is _CODE.DEADLINE_EXCEEDED:
        return NoAnswer(f"{message} (model.timeout_ms)")
    if code is _CODE.RESOURCE_EXHAUSTED:
        is_size = _TOO_LARGE.search(reason)
        return Poison("too_large", message) if is_size else Overloaded(message)
    if code in DENIED:
        return denied(message)
    if code in (_CODE.NOT_FOUND, _CODE.UNIMPLEMENTED):
        if LOADING in reason:
            return Transient(message)
        lists = "a Triton or MLServer lists its models by HTTP: POST /v2/repository/index"
        return usage(f"{not_there(message)}; {lists}")
    return Rejected("model_rejected", message) if code in _BY_MODEL else Transient(message)
