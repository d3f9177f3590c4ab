"""Python models behind `reshape` and `batch_input`."""

from collections.abc import Mapping
from pathlib import Path

from backends.errors import FaultyModel
from backends.response_sender import respond
from support.hosting import HEAD, batch_of, floats, hosted, one

CONFIG = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ -1, 1 ] } }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ 1, -1 ] } }
output { name: "SEEN" data_type: TYPE_INT32 dims: [ -1 ] }
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_INT32 source_input: "IN"
}
"""
CODE = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answered(request) for request in requests]

    def answered(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        ends = pb_utils.get_input_tensor_by_name(request, "ENDS").as_numpy()
        assert x.shape[2:] == (1,), x.shape
        outputs = [
            pb_utils.Tensor("OUT", x.transpose(0, 2, 1)),
            pb_utils.Tensor("SEEN", ends[None]),
        ]
        return pb_utils.InferenceResponse(outputs)
"""
)


def test_a_model_has_its_own_shapes_and_every_request_what_describes_the_batch(
    tmp_path: Path,
) -> None:
    with hosted(tmp_path, CODE, CONFIG) as instance:
        results = instance.execute(batch_of(floats(1, 2, 3), floats(4))).results
    assert [result["OUT"].tolist() for result in results] == [[[1, 2, 3]], [[4]]]
    assert [result["SEEN"].tolist() for result in results] == [[[3, 4]], [[3, 4]]]


def test_an_output_that_does_not_fit_its_reshape_is_the_models_fault(tmp_path: Path) -> None:
    code = CODE.replace("x.transpose(0, 2, 1)", "x[:, :, 0]")
    with hosted(tmp_path, code, CONFIG) as instance:
        fault = one(instance, floats(1, 2))
    assert isinstance(fault, FaultyModel)
    assert "returned output 'OUT' with shape [1,2], which does not fit its reshape [1, -1]" in str(
        fault
    )


def test_a_decoupled_model_has_them_too(tmp_path: Path) -> None:
    code = CODE.replace(
        "return [self.answered(request) for request in requests]",
        "for request in requests: request.get_response_sender().send(self.answered(request), 1)",
    )
    config = CONFIG + "model_transaction_policy { decoupled: true }"
    with hosted(tmp_path, code, config) as instance:
        [[first], [second]] = respond(instance, batch_of(floats(1, 2, 3), floats(4)))
    assert isinstance(first.result, Mapping)
    assert first.result["OUT"].tolist() == [[1, 2, 3]]
    assert isinstance(second.result, Mapping)
    assert second.result["SEEN"].tolist() == [[3, 4]]
