"""What a repository's settings may be."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.errors import Invalid
from control.repository_settings import (
    FORMATS,
    RISKY_FORMATS,
    RepositorySettings,
    formats_of,
    parse_settings,
    stored_settings,
)

KEY = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"
PRIVATE = KEY.replace("PUBLIC", "PRIVATE")


def test_nothing_that_can_bring_code_is_accepted_unless_somebody_allowed_it() -> None:
    assert not set(RepositorySettings().formats) & set(RISKY_FORMATS)
    assert parse_settings({"formats": ["onnx", "pickle"]}).formats == ("onnx", "pickle")


def test_only_the_deploy_ref_is_protected_unless_somebody_says_otherwise() -> None:
    assert parse_settings({"deploy_ref": "refs/heads/live"}).protected_refs == ("refs/heads/live",)
    assert parse_settings({"protected": []}).protected_refs == ()


def test_settings_survive_json() -> None:
    settings = parse_settings(
        {
            "deploy_ref": "refs/heads/live",
            "formats": ["onnx"],
            "protected": ["refs/heads/*"],
            "budgets": {"max_files": 7},
            "signing": "require",
            "trusted_keys": [KEY],
        }
    )
    assert parse_settings(json.loads(json.dumps(settings.as_json()))) == settings
    assert parse_settings(RepositorySettings().as_json()) == RepositorySettings()


def test_a_change_keeps_what_it_does_not_mention() -> None:
    before = parse_settings({"budgets": {"max_files": 7}, "signing": "warn"})
    after = parse_settings({"budgets": {"max_models": 3}}, before)
    assert (after.budgets.max_files, after.budgets.max_models, after.signing) == (7, 3, "warn")


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        ({"format": []}, "format", "settings have no 'format'; they have deploy_ref, formats"),
        ({"budgets": {"max_byte": 1}}, "budgets.max_byte", "they have max_pack_bytes"),
        ({"budgets": 3}, "budgets", "a map of numbers, got 3"),
        ({"budgets": {"max_files": 0}}, "budgets.max_files", "at least 1, got 0"),
        ({"budgets": {"max_files": True}}, "budgets.max_files", "at least 1, got True"),
        ({"budgets": {"max_files": 2**50}}, "budgets.max_files", "whole number"),
        ({"formats": "onnx"}, "formats", "a list of texts, got 'onnx'"),
        ({"formats": ["onyx"]}, "formats", "there is no format 'onyx'; there are onnx"),
        ({"formats": [1]}, "formats", "a list of texts"),
        ({"protected": ["main"]}, "protected", "'main' protects no ref; give globs such as"),
        ({"protected": ["refs/heads/a b"]}, "protected", "protects no ref"),
        ({"deploy_ref": "main"}, "deploy_ref", "'main' cannot be the deploy_ref: only refs/heads"),
        ({"deploy_ref": "refs/heads/--upload-pack=x"}, "deploy_ref", "begin with '-'"),
        ({"deploy_ref": None}, "deploy_ref", "must be text"),
        ({"signing": "maybe"}, "signing", "signing must be off, warn, require, got 'maybe'"),
        ({"signing": ["off"]}, "signing", "signing must be"),
        ({"signing": "require"}, "trusted_keys", "needs a key in trusted_keys"),
        ({"trusted_keys": ["x"]}, "trusted_keys", "number 1 is no public key"),
        ({"trusted_keys": [KEY, PRIVATE]}, "trusted_keys", "number 2 is no public key"),
        ({"trusted_keys": [KEY] * 101}, "trusted_keys", "100 entries at most, got 101"),
    ],
)
def test_what_cannot_be_is_refused_by_name(raw: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)) as refused:
        parse_settings(raw)
    assert refused.value.field == field


def test_a_row_of_a_later_build_is_read_as_far_as_it_is_understood() -> None:
    row = {**RepositorySettings().as_json(), "mood": "good"}
    row["budgets"] = {**row["budgets"], "max_mood": 3}
    assert stored_settings(row) == RepositorySettings()


def test_files_are_told_by_their_endings() -> None:
    assert formats_of("models/m/1/model.onnx") == ("onnx",)
    assert formats_of("1/Model.PT") == ("torch", "torchscript")
    assert formats_of("model.py") == ("python",)
    assert formats_of("1/mystery") == ()
    assert all(formats_of(f"x{end}") for ends in FORMATS.values() for end in ends)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from([*RepositorySettings.__struct_fields__, "other"]), json_like)
)
def test_any_json_is_settings_or_invalid(raw: dict[str, Any]) -> None:
    try:
        settings = parse_settings(raw)
    except Invalid:
        return
    assert parse_settings(settings.as_json()) == settings
