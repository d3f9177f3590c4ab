"""Asks a server what digit the picture in request.json is, with the stock tritonclient over gRPC.

python call.py [HOST:PORT]
"""

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc

SHADES = " .:-=+*#%@"

request = json.loads(Path(__file__).with_name("request.json").read_text())
image = np.array(request["inputs"][0]["data"], np.float32).reshape(1, 1, 8, 8)
for row in image[0, 0]:
    print("".join(SHADES[round(float(pixel) * 9)] * 2 for pixel in row))

client = tritonclient.grpc.InferenceServerClient([*sys.argv[1:], "127.0.0.1:8001"][0])
tensor = tritonclient.grpc.InferInput("IMAGE", image.shape, "FP32")
tensor.set_data_from_numpy(image)
result = client.infer("digits", [tensor])
version = result.get_response().model_version
print(f"version {version} of digits reads: {result.as_numpy('LOGITS').argmax()}")
