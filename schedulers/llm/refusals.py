"""What a language model does not answer, and how that is told. Pure."""

from backends.errors import ExecutionFailed
from schedulers.errors import DeadlineExceeded
from schedulers.llm.errors import PromptTooLong, SenselessRequest
from schedulers.llm.generation import Output
from schedulers.llm.request import Finish

REFUSALS: dict[str, type[Exception]] = {
    "invalid": SenselessRequest,
    "long": PromptTooLong,
    "busy": ExecutionFailed,
}
"""Why an engine did not take a request in, by the word it says (`frames.Refused`)."""


def failure(output: Output) -> Exception:
    """Why an answer ended that neither stopped nor reached its length."""
    if output.finish is Finish.INVALID:
        return SenselessRequest(output.message)
    if output.finish is Finish.DEADLINE:
        return DeadlineExceeded("Request timeout expired")
    return ExecutionFailed(output.message)
