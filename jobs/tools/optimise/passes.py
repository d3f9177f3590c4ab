"""Graph passes: folding, fusion, dead nodes, by onnxslim, in standard operators."""

import onnx
import onnxslim

from jobs.tools.networks.files import first_line
from jobs.tools.work import refuse


def simplify(network: onnx.ModelProto, whose: str) -> onnx.ModelProto:
    """A simpler graph that any runtime reads. Refuses a network that onnxslim cannot read.

    onnxruntime's own optimised graph would be faster to load but is tied to its release and to
    the CPU that it was made on.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    try:
        found: onnx.ModelProto = onnxslim.slim(copy)
        onnx.checker.check_model(found)
    except Exception as error:  # noqa: BLE001 - it raises what a graph provokes in it
        refuse(f"onnxslim cannot simplify the network of {whose}: {first_line(error)}")
    return found
