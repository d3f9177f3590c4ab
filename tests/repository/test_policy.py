"""Which versions a version policy selects."""

from pathlib import Path

import pytest

from repository.config.read import parse
from repository.model import ModelConfig
from repository.policy import no_version_reason, select


@pytest.mark.parametrize(
    ("policy", "selected"),
    [
        ("", (7,)),
        ("version_policy { latest {} }", (7,)),
        ("version_policy { latest { num_versions: 2 } }", (3, 7)),
        ("version_policy { latest { num_versions: 9 } }", (1, 3, 7)),
        ("version_policy { all {} }", (1, 3, 7)),
        ("version_policy { specific { versions: [7, 1, 5] } }", (1, 7)),
        ("version_policy { specific { versions: [5] } }", ()),
    ],
)
def test_a_policy_selects_versions_in_ascending_order(policy: str, selected: tuple[int, ...]):
    assert select(parse(policy, Path("config.pbtxt")), [7, 1, 3]) == selected


def test_no_versions_leave_nothing_to_select():
    assert select(ModelConfig(), []) == ()


def test_the_reason_is_tritons():
    assert no_version_reason(ModelConfig(name="x")) == (
        "at least one version must be available under the version policy of model 'x'"
    )
