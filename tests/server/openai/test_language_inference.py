"""What a request under way keeps of its body."""

from starlette.requests import Request

from server.openai.language_inference import LanguageInference


def test_a_request_under_way_keeps_nothing_of_its_body_but_what_was_read() -> None:
    caller = LanguageInference(Request({"type": "http", "headers": []}), 0)
    caller.read(b'{"model": "talker", "metadata": {"a": "%b"}}' % (b"x" * 1000), 10)
    assert caller.document()["metadata"] == {"a": "x" * 1000}
    assert not caller.members
