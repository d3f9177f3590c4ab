"""Infer requests with a fault, sent over REST and gRPC; the status and the text that come back."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from repository.config.tensors import BY_NAME
from schedulers.request import NO_PARAMETERS
from server.codec.grpc_infer import set_parameter
from support.server import Server

HTTP = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
}


class Tensor(NamedTuple):
    """An input; `octets` stands for its data, zeros of the right size unless given."""

    name: str
    shape: tuple[int, ...]
    datatype: str = "INT32"
    octets: bytes | None = None

    @property
    def data(self) -> bytes:
        if self.octets is not None:
            return self.octets
        count = 1
        for dim in self.shape:
            count *= dim
        return bytes(count * (BY_NAME[self.datatype].itemsize or 4))


class Ask(NamedTuple):
    """An infer request before it is written for a wire."""

    model: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[str, ...] = ()
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Any] = NO_PARAMETERS

    def over_rest(self, server: Server) -> tuple[int, str]:
        """Status and error text."""
        inputs = [
            {
                "name": one.name,
                "datatype": one.datatype,
                "shape": list(one.shape),
                "parameters": {"binary_data_size": len(one.data)},
            }
            for one in self.inputs
        ]
        document = {
            "id": self.id,
            "inputs": inputs,
            "outputs": [{"name": name} for name in self.outputs],
            "parameters": dict(self.parameters),
        }
        version = f"/versions/{self.version}" if self.version else ""
        path = f"/v2/models/{self.model}{version}/infer"
        return rest(server, path, json.dumps(document).encode(), *(one.data for one in self.inputs))

    def over_grpc(self, server: Server) -> tuple[str, str]:
        """Status code and details."""
        message = pb.ModelInferRequest(
            model_name=self.model, model_version=self.version, id=self.id
        )
        for one in self.inputs:
            message.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
            message.raw_input_contents.append(one.data)
        for name in self.outputs:
            message.outputs.add(name=name)
        for key, value in self.parameters.items():
            set_parameter(message.parameters[key], value)
        return rpc(server, "ModelInfer", message)


def rest(server: Server, path: str, header: bytes, *blobs: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    headers = {"Inference-Header-Content-Length": str(len(header))} if blobs else {}
    connection.request("POST", path, b"".join((header, *blobs)), headers)
    response = connection.getresponse()
    status, body = response.status, response.read()
    connection.close()
    if status == 200:
        return status, ""
    found: str = json.loads(body)["error"]
    return status, found


def rpc(server: Server, method: str, message: Any) -> tuple[str, str]:
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            getattr(stub, method)(message, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
        return "OK", ""
