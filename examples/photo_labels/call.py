"""Sends photographs of 12 megapixels by every way in: `python -m examples.photo_labels.call`."""

import http.client
import json
import sys
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import tritonclient.grpc

from examples.arguments import Addresses, addresses_in, parser_for, run
from examples.photo_labels.photographs import PHOTOGRAPHS, large_jpeg
from examples.protocols import StreamResponse, ask_both, send_on_stream

MODEL, INPUT, OUTPUTS = "photo_labels", "PHOTO", ["LABELS", "SCORES"]


def main() -> None:
    """Print the labels of each photograph: as the body of a REST request, as a tensor over REST
    and gRPC, and on a gRPC stream; fail if two ways differ."""
    parser = parser_for(__doc__)
    parser.add_argument("photos", nargs="*", type=Path, help="JPEG, PNG or WebP files")
    parser.add_argument("--write", type=Path, help="write the two photographs here, and stop")
    arguments = parser.parse_args()
    files = {path.name: path.read_bytes() for path in arguments.photos}
    files = files or {f"{name}.jpg": large_jpeg(name) for name in PHOTOGRAPHS}
    if arguments.write is not None:
        for name, data in files.items():
            (arguments.write / name).write_bytes(data)
        return
    for name, data in files.items():
        answers = labels_of(addresses_in(arguments), data)
        for way, labels in answers.items():
            print(f"{name}, {way}: {', '.join(labels)}")
        if len(set(answers.values())) > 1:
            sys.exit("the ways in differ")


def labels_of(addresses: Addresses, data: bytes) -> dict[str, tuple[str, ...]]:
    """The labels, best first, by the way in."""
    array = np.array([[data]], np.object_)
    found = {"REST, a body": as_body(addresses, data)}
    for answer in ask_both(addresses, MODEL, {INPUT: array}, OUTPUTS):
        found[f"{answer.protocol}, a tensor"] = texts(answer.outputs["LABELS"][0])
    found["gRPC, a stream"] = on_stream(addresses, array)
    return found


def as_body(addresses: Addresses, data: bytes) -> tuple[str, ...]:
    """As curl would send it."""
    host, _, port = addresses.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    version = f"/versions/{addresses.version}" if addresses.version else ""
    path = f"/v2/models/{MODEL}{version}/infer"
    try:
        connection.request("POST", path, data, {"Content-Type": "image/jpeg"})
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if "error" in answer:
        sys.exit(f"the server refused: {answer['error']}")
    return tuple({one["name"]: one["data"] for one in answer["outputs"]}["LABELS"])


def on_stream(
    addresses: Addresses, array: "np.ndarray[tuple[int, int], np.dtype[np.object_]]"
) -> tuple[str, ...]:
    """The answer of one request on a stream."""
    tensor = tritonclient.grpc.InferInput(INPUT, [1, 1], "BYTES")
    tensor.set_data_from_numpy(array)
    responses: SimpleQueue[StreamResponse] = SimpleQueue()
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        send_on_stream(client, responses, MODEL, [tensor], model_version=addresses.version)
        result, error = responses.get(timeout=60)
        client.stop_stream()
    if result is None:
        raise error or RuntimeError("neither an answer nor an error")
    return texts(result.as_numpy("LABELS")[0])


def texts(labels: "np.ndarray[tuple[int], np.dtype[np.object_]]") -> tuple[str, ...]:
    return tuple(label.decode() for label in labels)


if __name__ == "__main__":
    run(main)
