"""The list of models: language models alone, with what a caller needs to know of them."""

from openai import OpenAI

from support.server import Server


def test_language_models_are_listed_and_others_are_not(ai: OpenAI) -> None:
    found = {model.id: model for model in ai.models.list()}
    assert set(found) == {"narrow", "talker"}
    assert found["talker"].object == "model"
    assert found["talker"].owned_by == "modelyard"
    assert getattr(found["talker"], "max_model_len") == 256  # noqa: B009
    assert ai.models.retrieve("talker") == found["talker"]


def test_health_and_metadata_are_there_beside_them(server: Server) -> None:
    assert server.is_ready()
    assert server.get("/v2/models/talker")[0] == 200
