"""Conversions: the same network in another format."""

from typing import Annotated, Literal

import msgspec

from control.jobs.specs.optimise import Tolerance
from control.jobs.specs.quantise import BatchSizes, Share
from control.jobs.specs.source import JobSource


class ConvertSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="convert"):
    """Write the version in another format.

    To ONNX: TorchScript, torch.export, XGBoost, LightGBM, pickled scikit-learn models, folders of
    Hugging Face encoders. From ONNX: to OpenVINO's IR and to ncnn.

    target: the format to write.
    data: an .npz with an array for each input, by its name, and rows in front: its path below the
        version's or the model's folder, or an absolute one below a folder of --job-data-dir.
    trusted: the version's files may run code in the job's process, as loading a pickle does; only
        an administrator may say so.
    weights: "fp16" stores weights in half of the bytes, where the target can.
    exporter: of torch networks: "dynamo", "torchscript", or "auto": the one that suits the file,
        and the other where that fails.
    tolerance: largest difference from the source that is accepted, as a share of the output's
        largest value; None: 1e-4, with fp16 weights 0.01.
    outliers: share of the compared rows of each output that may differ by more.
    missing: compare rows with missing values (NaN) where the source takes them; without, clients
        must never send any.
    rows: numbers of rows that source and result are compared on, none of them that of the example.
    max_batch_size: of the result's config where the source's says none.
    """

    target: Literal["onnx", "openvino", "ncnn", "litert"] = "onnx"
    data: str = ""
    trusted: bool = False
    weights: Literal["fp32", "fp16"] = "fp32"
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    tolerance: Tolerance | None = None
    outliers: Share = 0.0
    missing: bool = True
    rows: BatchSizes = (1, 3, 8)
    max_batch_size: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
