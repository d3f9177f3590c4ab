"""The campaign's models: one for each kind of process that answers, with answers to check."""

import json
from pathlib import Path

VECTOR = """
name: "{name}" backend: "{backend}" max_batch_size: 8
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: -1 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }}
"""

DOUBLE = '''
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is twice INPUT0; a file named `hang` in HANG_FOLDER stops it for good."""

    def initialize(self, args):
        if args["model_version"] != "1":
            time.sleep(1.0)

    def execute(self, requests):
        bytearray(64 * 2**20)  # what a model needs while it computes
        while os.path.exists({hang!r}):
            time.sleep(0.05)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", 2 * one.inputs()[0].as_numpy())]
            )
            for one in requests
        ]
'''

SCRIPT = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="double",
            requested_output_names=["OUTPUT0"],
            inputs=request.inputs(),
            trace=request.trace(),
        )
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
"""

SUM = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        key, sent = request.correlation_id(), request.inputs()[0].as_numpy()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0 * sent
        self.sums[key] = self.sums[key] + sent
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", self.sums[key])])
"""
"""A sequence that it does not know is a KeyError: never a sum that begins in the middle."""

SEQUENCES = "sequence_batching { oldest { max_candidate_sequences: 64 } }"

CHAIN = """
name: "chain" platform: "ensemble" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step {
    model_name: "double" model_version: -1
    input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "doubled" }
  }
  step {
    model_name: "echo" model_version: -1
    input_map { key: "INPUT0" value: "doubled" } output_map { key: "OUTPUT0" value: "OUTPUT0" }
  }
}
"""

DECOUPLED = """
model_transaction_policy { decoupled: true }
parameters { key: "responses" value { string_value: "40" } }
parameters { key: "execute_delay_ms" value { string_value: "50" } }
"""

TINY = """
name: "tiny" backend: "llm"
parameters { key: "context" value { string_value: "256" } }
"""


def write(repository: Path, hang: Path) -> None:
    """`echo` (in the gateway), `double` (python), `several` (decoupled), `tiny` (an LLM); `chain`
    is an ensemble of `double` and `echo`, `script` calls `double`, `sum` has sequences."""
    write_model(repository / "echo", VECTOR.format(name="echo", backend="identity"))
    write_model(
        repository / "several", VECTOR.format(name="several", backend="identity") + DECOUPLED
    )
    add_version(repository, "echo", 1)
    add_version(repository, "several", 1)
    python = {"double": DOUBLE.format(hang=str(hang)), "script": SCRIPT, "sum": SUM}
    for name, code in python.items():
        more = (
            "sequence_batching { oldest { max_candidate_sequences: 64 } }" if name == "sum" else ""
        )
        write_model(repository / name, VECTOR.format(name=name, backend="python") + more)
        (repository / name / "1").mkdir()
        (repository / name / "1" / "model.py").write_text(code)
    write_model(repository / "chain", CHAIN)
    (repository / "chain" / "1").mkdir()
    _language_model(repository / "tiny" / "1")


def add_version(repository: Path, model: str, number: int) -> None:
    """Another version with the same answers."""
    folder = repository / model / str(number)
    folder.mkdir(parents=True)
    source = repository / model / "1" / "model.py"
    if source.exists():
        (folder / "model.py").write_bytes(source.read_bytes())
    else:
        (folder / "model.txt").write_text(f"version {number}\n")


def write_model(folder: Path, config: str) -> None:
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)


CHAT = "{% for it in messages %}{{ it.role[0] }}:{{ it.content }}\n{% endfor %}a:"


def _language_model(folder: Path) -> None:
    """A random Llama of 2 layers over bytes."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True)
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {
        letter: number for number, letter in enumerate(["<pad>", "<s>", "</s>", *sorted(letters)])
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT}))
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
