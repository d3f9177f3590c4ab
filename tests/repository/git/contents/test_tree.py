"""Which models and versions lie in a tree, and what changed between two."""

from repository.git.contents.tree import TreeEntry, changed_versions, models_in, touched


def tree(**oids: str) -> list[TreeEntry]:
    return [TreeEntry("100644", "blob", oid, 1, path) for path, oid in oids.items()]


def paths(*names: str) -> list[TreeEntry]:
    return tree(**dict.fromkeys(names, "a"))


def names_in(*files: str) -> dict[str, list[str]]:
    return {name: [e.path for e in found] for name, found in models_in(paths(*files)).items()}


def test_models_lie_below_the_models_folder_where_there_is_one():
    files = ("README.md", "tools/1/x", "models/README.md", "models/a/config.pbtxt", "models/b/w")
    assert names_in(*files) == {"a": ["models/a/config.pbtxt"], "b": ["models/b/w"]}


def test_without_a_models_folder_a_model_has_a_config_or_a_version():
    files = (
        "README.md",
        ".gitattributes",
        "a/config.pbtxt",
        "b/1/w",
        "c/notes",
        "d/01/w",
        ".e/1/w",
    )
    assert set(names_in(*files)) == {"a", "b"}


def test_a_file_named_models_is_no_folder_of_models():
    assert set(names_in("models", "a/1/w")) == {"a"}


def test_touched_are_models_changed_added_and_removed():
    old = tree(**{"a/1/w": "1", "b/1/w": "1", "c/1/w": "1", "README": "1"})
    new = tree(**{"a/1/w": "1", "b/1/w": "2", "d/1/w": "1", "README": "2"})
    assert touched(old, new) == ("b", "c", "d")


def test_moving_all_models_into_a_models_folder_touches_none():
    assert (
        touched(paths("a/1/w", "a/config.pbtxt"), paths("models/a/1/w", "models/a/config.pbtxt"))
        == ()
    )


def test_a_version_changes_when_a_file_in_it_changes_comes_or_goes():
    old = tree(**{"a/1/w": "1", "a/2/w": "1", "a/3/w": "1", "a/4/w": "1", "a/config.pbtxt": "1"})
    new = tree(
        **{
            "a/1/w": "1",
            "a/2/w": "2",
            "a/3/w": "1",
            "a/3/x": "1",
            "a/5/w": "1",
            "a/config.pbtxt": "2",
        }
    )
    assert changed_versions(old, new) == {"a": (2, 3)}


def test_a_removed_or_added_model_changes_no_version():
    assert changed_versions(paths("a/1/w"), paths("b/1/w")) == {}
