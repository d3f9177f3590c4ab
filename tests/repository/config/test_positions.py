"""Lines and columns of fields."""

from pathlib import Path

from repository.config.positions import Positions

TEXT = """\
name: "a"
input [
  { name: "x" dims: [ 1, 2 ] },
  { name: "y"
    dims: 3 dims: 4 }
]
dynamic_batching {
  priority_queue_policy [ { key: 7 value {} },
                          { key: 9 value { max_queue_size: 1 } } ]
}
"""


def positions() -> Positions:
    return Positions(Path("config.pbtxt"), TEXT)


def test_each_element_of_a_list_has_its_own_place():
    assert positions().at("input[0].dims[0]") == (3, 15)
    assert positions().at("input[0].dims[1]") == (3, 26)
    assert positions().at("input[1].dims[1]") == (5, 13)


def test_an_absent_field_is_at_what_encloses_it():
    assert positions().at("input[1].reshape.shape") == (4, 3)
    assert positions().at("max_batch_size") == (1, 1)


def test_a_map_entry_is_found_by_its_key():
    path = positions().keyed("dynamic_batching.priority_queue_policy", 9)
    assert positions().at(f"{path}.value.max_queue_size") == (9, 44)


def test_given_tells_an_absent_field_from_a_default_value():
    assert Positions(Path("c"), "max_batch_size: 0").given("max_batch_size")
    assert not positions().given("max_batch_size")


def test_a_config_without_text_is_nowhere():
    assert Positions(Path("c")).at("name") == (0, 0)


def test_text_nested_beyond_measure_does_not_break_the_scanner():
    assert Positions(Path("c"), "a{" * 100_000).at("a") == (1, 1)
