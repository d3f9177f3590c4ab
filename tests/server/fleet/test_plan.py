"""What to do to one model, decided from digests alone."""

from dataclasses import replace
from pathlib import Path

from google.protobuf import text_format

from repository.model import ModelConfig, ModelFolder, ModelVersion, PinnedVersion
from repository.policy import default_version
from server.fleet.plan import (
    BuildDigests,
    ModelChange,
    ObservedVersions,
    next_change,
)

ALL = "version_policy { all {} }"
LATEST = "version_policy { latest { num_versions: 1 } }"


def folder(
    policy: str = ALL, core: str = "c1", instances: str = "i1", **digests: str
) -> ModelFolder:
    """`folder(v1="a", v2="b")`: a model with these versions and their digests."""
    config = text_format.Parse(f'name: "m" {policy}', ModelConfig())
    home = Path("repository/m")
    versions = tuple(
        ModelVersion("m", int(key[1:]), home, home / key[1:], config, digest)
        for key, digest in sorted(digests.items())
    )
    return ModelFolder("m", home.parent, home, config, versions, core, instances)


def basis(files: str, core: str = "c1", instances: str = "i1") -> BuildDigests:
    return BuildDigests(core, files, instances)


def loads(change: ModelChange | None) -> list[int]:
    return [version.number for version in change.load] if change else []


def test_a_new_model_loads_every_version_its_policy_wants() -> None:
    assert loads(next_change(folder(v1="a", v2="b"), ObservedVersions())) == [1, 2]
    assert loads(next_change(folder(LATEST, v1="a", v2="b"), ObservedVersions())) == [2]


def test_nothing_to_do_is_no_change() -> None:
    assert next_change(folder(v1="a"), ObservedVersions({1: basis("a")})) is None


def test_a_new_version_does_not_reload_its_siblings() -> None:
    change = next_change(folder(v1="a", v2="b"), ObservedVersions({1: basis("a")}))
    assert loads(change) == [2]
    assert change is not None
    assert not change.atomic


def test_changed_files_of_a_version_rebuild_that_one_alone() -> None:
    change = next_change(folder(v1="a", v2="B"), ObservedVersions({1: basis("a"), 2: basis("b")}))
    assert loads(change) == [2]
    assert change is not None
    assert change.atomic
    assert change.unload == ()


def test_a_changed_config_rebuilds_every_version_together() -> None:
    held = ObservedVersions({1: basis("a"), 2: basis("b")})
    change = next_change(folder(core="c2", v1="a", v2="b"), held)
    assert loads(change) == [1, 2]
    assert change is not None
    assert change.atomic


def test_latest_unloads_the_old_version_in_the_change_that_loads_the_new() -> None:
    change = next_change(folder(LATEST, v2="b", v3="c"), ObservedVersions({2: basis("b")}))
    assert loads(change) == [3]
    assert change is not None
    assert change.unload == (2,)


def test_the_old_version_stays_while_the_new_one_is_known_to_fail() -> None:
    held = ObservedVersions({2: basis("b")}, failed={3: basis("c")})
    assert next_change(folder(LATEST, v2="b", v3="c"), held) is None


def test_a_failed_version_is_tried_again_when_any_of_its_digests_changes() -> None:
    held = ObservedVersions(failed={1: basis("a")})
    assert next_change(folder(v1="a"), held) is None
    assert loads(next_change(folder(v1="A"), held)) == [1]
    assert loads(next_change(folder(core="c2", v1="a"), held)) == [1]
    assert loads(next_change(folder(instances="i2", v1="a"), held)) == [1]


def test_a_failed_version_does_not_keep_a_newer_one_from_loading() -> None:
    held = ObservedVersions({2: basis("b")}, failed={3: basis("c")})
    change = next_change(folder(LATEST, v2="b", v3="c", v4="d"), held)
    assert loads(change) == [4]
    assert change is not None
    assert change.unload == (2,)


def test_other_versions_still_load_beside_a_failed_one() -> None:
    held = ObservedVersions({1: basis("a")}, failed={3: basis("c")})
    assert loads(next_change(folder(v1="a", v3="c", v4="d"), held)) == [4]


def test_what_was_dropped_with_a_failed_reload_waits_until_the_failure_is_mended() -> None:
    held = ObservedVersions(
        {1: basis("a"), 2: basis("b")},
        failed={2: basis("b", "c2")},
        dropped={1: basis("a", "c2")},
    )
    assert next_change(folder(core="c2", v1="a", v2="b"), held) is None
    assert loads(next_change(folder(core="c2", v1="a", v2="B"), held)) == [1, 2]
    assert loads(next_change(folder(core="c3", v1="a", v2="b"), held)) == [1, 2]


def test_what_was_dropped_loads_when_the_failed_version_is_removed() -> None:
    held = ObservedVersions(
        {1: basis("a"), 2: basis("b")},
        failed={2: basis("b", "c2")},
        dropped={1: basis("a", "c2")},
    )
    change = next_change(folder(core="c2", v1="a"), held)
    assert loads(change) == [1]
    assert change is not None
    assert change.unload == (2,)


def test_taking_an_edit_back_needs_no_reload() -> None:
    held = ObservedVersions({1: basis("a")}, failed={1: basis("a", "c2")})
    assert next_change(folder(v1="a"), held) is None


def test_changed_instances_resize_what_serves_in_place() -> None:
    change = next_change(folder(instances="i2", v1="a"), ObservedVersions({1: basis("a")}))
    assert change is not None
    assert loads(change) == []
    assert [version.number for version in change.resize] == [1]


def test_a_failed_resize_is_not_repeated_and_blocks_nothing() -> None:
    held = ObservedVersions({1: basis("a"), 2: basis("b")}, failed={1: basis("a", instances="i2")})
    change = next_change(folder(instances="i2", v1="a"), held)
    assert change == ModelChange(unload=(2,))


def test_a_changed_policy_loads_and_unloads_without_a_reload() -> None:
    held = ObservedVersions({1: basis("a"), 2: basis("b")})
    assert next_change(folder(LATEST, v1="a", v2="b"), held) == ModelChange(unload=(1,))
    back = next_change(folder(ALL, v1="a", v2="b"), ObservedVersions({2: basis("b")}))
    assert loads(back) == [1]


def test_a_deleted_version_is_unloaded_though_another_one_failed() -> None:
    held = ObservedVersions({1: basis("a"), 2: basis("b")}, failed={4: basis("d")})
    assert next_change(folder(v1="a", v4="d"), held) == ModelChange(unload=(2,))


def test_the_last_version_that_answers_stays_when_only_a_failed_one_is_left() -> None:
    held = ObservedVersions({2: basis("b")}, failed={4: basis("d")})
    assert next_change(folder(LATEST, v4="d"), held) is None


def test_a_policy_that_selects_nothing_keeps_what_serves_and_is_on_disk() -> None:
    specific = "version_policy { specific { versions: 9 } }"
    assert next_change(folder(specific, v1="a"), ObservedVersions({1: basis("a")})) is None


def test_a_model_without_any_version_left_is_unloaded() -> None:
    assert next_change(folder(), ObservedVersions({1: basis("a")})) == ModelChange(unload=(1,))


def test_an_unwanted_model_is_unloaded_whole() -> None:
    assert next_change(None, ObservedVersions({1: basis("a"), 2: basis("b")})) == ModelChange(
        unload=(1, 2)
    )
    assert next_change(None, ObservedVersions(failed={1: basis("a")})) is None


def test_removing_the_newest_version_brings_back_the_one_before() -> None:
    change = next_change(folder(LATEST, v2="b"), ObservedVersions({3: basis("c")}))
    assert loads(change) == [2]
    assert change is not None
    assert change.unload == (3,)


def pin(number: int, digest: str, core: str = "c1", instances: str = "i1") -> PinnedVersion:
    config = text_format.Parse('name: "m"', ModelConfig())
    home = Path("store/elsewhere/m")
    version = ModelVersion("m", number, home, home / str(number), config, digest)
    return PinnedVersion(version, core, instances, "alias champion")


def test_a_version_that_is_referred_to_is_loaded_beside_what_the_policy_wants() -> None:
    wanted = replace(folder(LATEST, v2="b"), pins=(pin(1, "a"),))
    assert loads(next_change(wanted, ObservedVersions())) == [1, 2]


def test_a_version_that_is_referred_to_is_not_unloaded_by_a_newer_one() -> None:
    wanted = replace(folder(LATEST, v2="b"), pins=(pin(1, "a"),))
    held = ObservedVersions({1: basis("a"), 2: basis("b")})
    assert next_change(wanted, held) is None


def test_a_version_is_let_go_once_nothing_refers_to_it() -> None:
    held = ObservedVersions({1: basis("a"), 2: basis("b")})
    change = next_change(folder(LATEST, v1="a", v2="b"), held)
    assert change is not None
    assert change.unload == (1,)


def test_a_referred_version_keeps_the_config_it_was_deployed_with() -> None:
    wanted = replace(folder(LATEST, core="c2", v2="b"), pins=(pin(1, "a", core="c1"),))
    held = ObservedVersions({1: basis("a", core="c1"), 2: basis("b", core="c2")})
    assert next_change(wanted, held) is None


def test_only_what_is_referred_to_is_wanted_of_a_model_nobody_loaded() -> None:
    wanted = replace(folder(v1="a", v2="b"), pins=(pin(1, "a"),), only_pinned=True)
    assert loads(next_change(wanted, ObservedVersions())) == [1]


def test_the_highest_serving_version_answers_who_names_none() -> None:
    assert default_version(folder(v1="a", v2="b"), {1, 2}) == 2


def test_a_version_that_is_only_referred_to_does_not_answer_who_names_none() -> None:
    older = replace(folder(LATEST, v1="a"), pins=(pin(2, "b"),))
    assert default_version(older, {1, 2}) == 1


def test_a_referred_version_answers_who_names_none_while_there_is_no_other() -> None:
    older = replace(folder(LATEST, v1="a"), pins=(pin(2, "b"),))
    assert default_version(older, {2}) == 2
