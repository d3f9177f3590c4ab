import logging

from repository.process.output import LineSplitter


def test_printed_lines_are_bounded_in_length_and_rate() -> None:
    lines = LineSplitter(logging.INFO)
    assert [line.text for line in lines.feed(b"one\ntw", 1.0)] == ["one"]
    assert lines.feed(b"o\n" + b"z" * 20_000, 1.0)[0].text == "two"
    assert len(lines.feed(b"x\n" * 1_000, 1.1)) < 200
    assert lines.feed(b"part", 1.2) == []
    notice, part, following = lines.feed(b"\nlater\n", 2.5)
    assert "lines dropped" in notice.text
    assert part.text == "part"
    assert following.text == "later"


def test_the_last_line_of_a_worker_is_the_models_and_not_the_stack_where_it_hung() -> None:
    lines = LineSplitter(logging.WARNING)

    lines.feed(b"cannot reach the feature store\n", 1.0)
    lines.feed(b'Stack (most recent call first):\n  File "/models/m/1/model.py", line 4\n', 2.0)
    lines.feed(b'  File "<string>", line 1 in <module>\n', 3.0)

    assert lines.last == "cannot reach the feature store"


def test_a_traceback_that_a_model_logs_keeps_its_indentation() -> None:
    lines = LineSplitter(logging.INFO)

    taken = lines.feed(b'\x1eE Traceback:\n\x1eE   File "model.py", line 6\n', 1.0)

    assert [line.text for line in taken] == ["Traceback:", '  File "model.py", line 6']
