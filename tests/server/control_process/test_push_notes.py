"""What a pusher is told of a config that is served, and not in all that it asks for."""

from pathlib import Path

from support.yard import write_identity, yard


def test_a_field_without_effect_is_noted_and_the_push_is_served(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        work = y.repository("vision")
        write_identity(work, "digits", 1, config="optimization { eager_batching: true }\n")
        y.commit(work, "Digits")
        said = y.push(work)
        y.wait_versions("digits", 1)
    (line,) = [one for one in said.splitlines() if "E155" in one]
    assert "models/digits/config.pbtxt:" in line
    assert "optimization.eager_batching has no effect here: it is always so" in line
