"""Writes what `modelyard demo` carries: `python -m examples.digits.carry`.

The two versions as `examples.build` trains them, and a request with a picture that neither has
seen. Run it after a change of the example; tests/examples holds both together.
"""

import json
import shutil
import tempfile
from pathlib import Path

import onnx

from examples.build import EXAMPLES, build_one
from examples.digits.images import split

DEMO = Path(__file__).parents[2] / "server" / "cli" / "demo_files"
PICTURE = 0
"""Of the held-out ones."""


def main() -> None:
    """Replace the model and the request in the demo's files."""
    example = next(one for one in EXAMPLES if one.name == "digits")
    with tempfile.TemporaryDirectory() as temporary:
        build_one(example, Path(temporary))
        shutil.rmtree(DEMO / "models", ignore_errors=True)
        shutil.copytree(Path(temporary) / "digits", DEMO / "models" / "digits")
        for path in DEMO.glob("models/*/*/model.onnx"):
            _forget_origin(path)
    (DEMO / "request.json").write_text(json.dumps(request()) + "\n")


def request() -> dict[str, object]:
    """A v2 inference request for one picture, answered with the likeliest digit by name."""
    pixels = [round(float(pixel), 4) for pixel in split().held_out.images[PICTURE].ravel()]
    image = {"name": "IMAGE", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": pixels}
    return {
        "inputs": [image],
        "outputs": [{"name": "LOGITS", "parameters": {"classification": 1}}],
    }


def _forget_origin(path: Path) -> None:
    """Drop the exporter's notes, which name files of this machine."""
    model = onnx.load(path)
    del model.metadata_props[:]
    for one in (*model.graph.node, *model.graph.value_info, *model.graph.initializer):
        del one.metadata_props[:]
        one.doc_string = ""
    for one in (*model.graph.input, *model.graph.output):
        del one.metadata_props[:]
    onnx.save(model, path)


if __name__ == "__main__":
    main()
