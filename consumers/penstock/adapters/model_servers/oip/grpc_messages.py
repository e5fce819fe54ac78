"""The messages of the Open Inference Protocol's gRPC service, with the fields that are used.

Rule: field numbers are those of the published `open_inference_grpc.proto` and, for the
configuration, of Triton's `model_config.proto`. Fields that are not listed are skipped in answers.
The classes are built at import: generated code would only work with matching protobuf versions.
Owner: the gRPC wire.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
    # A pool of our own: otherwise a program that also loads the published file would fail.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


MESSAGES: Final = _made()
# From a tensor's datatype to the field that holds the tensor's typed values.
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
