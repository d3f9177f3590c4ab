"""What a job's process prints and says, as lines of its log."""

from jobs.process.output import MOST_LINE_BYTES, MOST_LINES, OutputTail


def test_a_note_is_kept_as_lines_that_are_cut_and_change_no_terminal() -> None:
    tail = OutputTail()
    tail.add("one\n\ntwo\x1b[2J\0" + "x" * 10_000)
    one, two = tail.take()
    assert one == "one"
    assert two.startswith("two�[2J�xx")
    assert len(two) == MOST_LINE_BYTES


def test_of_a_note_with_very_many_lines_the_last_are_kept() -> None:
    tail = OutputTail()
    tail.add("\n".join(map(str, range(100_000))))
    assert len(tail.lines()) == MOST_LINES
    assert tail.lines()[-1] == "99999"
