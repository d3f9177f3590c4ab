"""What a checkpoint folder would be served as: read from its JSON and headers alone; no torch.

The checker refuses by it, the ledger asks by it, the engine loads by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.artefact import refuse
from backends.llm.config.decoder import DecoderConfig
from backends.llm.config.families import read_config
from backends.llm.config.fields import read_fields
from backends.llm.embedding_plan import EmbeddingPlan, read_embedding
from backends.llm.errors import NoRoom
from backends.llm.memory import (
    MemoryLayout,
    block_bytes,
    plan_memory,
    weight_bytes,
    workspace_bytes,
)
from backends.llm.settings import ServeSettings, read_settings
from repository.config.generation_defaults import FILE, SWITCH, effective
from repository.folders.foreign_weights import foreign_weights
from repository.model import ModelVersion

BLOCK_TOKENS = 16
DEFAULT_CONTEXT = 8192
"""Tokens of one sequence where config.pbtxt sets no `context` and the model could do more."""
DEFAULT_CACHE_TOKENS = 32_768
"""Tokens the cache holds where config.pbtxt sets no `memory_budget`, unless `context` is more."""


@dataclass(frozen=True, slots=True)
class ServePlan:
    """`model`: a decoder that generates, or what embeds. `context`: most tokens of one sequence.
    `defaults`: of sampling, by name, where a request does not say.

    `budget`: bytes for weights, a step and the cache together; `least`: with which the version can
    just be served (one whole context in the cache).
    """

    settings: ServeSettings
    model: DecoderConfig | EmbeddingPlan
    context: int
    budget: int
    least: int
    defaults: Mapping[str, float] = field(default_factory=dict)

    @property
    def embedding(self) -> EmbeddingPlan | None:
        return self.model if isinstance(self.model, EmbeddingPlan) else None


def plan_serving(version: ModelVersion) -> ServePlan:
    """Raises LoadFailed naming the file, the field or the parameter that is wrong."""
    settings = read_settings(version)
    foreign = foreign_weights([entry.name for entry in version.path.iterdir()])
    if foreign:
        refuse(version, foreign)
    layout = layout_of(settings)
    embedding = read_embedding(version.path, settings.pooling, settings.context)
    if embedding is not None:
        return _plan_embedding(settings, layout, embedding)
    config = read_config(version.path)
    context = settings.context or min(config.positions, DEFAULT_CONTEXT)
    if context > config.positions:
        refuse(
            version,
            f"parameter context is {context}; config.json's 'max_position_embeddings' allows "
            f"{config.positions}",
        )
    fixed = weight_bytes(config, layout) + workspace_bytes(config, settings.step_tokens)
    block = block_bytes(config, layout)
    usual = fixed + -(-max(context, DEFAULT_CACHE_TOKENS) // BLOCK_TOKENS) * block
    budget = settings.memory_budget or usual
    plan_memory(config, layout, budget, context, settings.step_tokens)
    least = fixed + -(-context // BLOCK_TOKENS) * block
    return ServePlan(settings, config, context, budget, least, _defaults(version, settings))


def _defaults(version: ModelVersion, settings: ServeSettings) -> Mapping[str, float]:
    there = (version.path / FILE).is_file()
    values = read_fields(version.path / FILE).values if there else {}
    parameters = {**dict(settings.sampling), SWITCH: settings.generation_config}
    try:
        return effective(values, parameters)
    except ValueError as error:
        refuse(version, f"{error}; or set the parameter {SWITCH} to 'ignore'")


def layout_of(settings: ServeSettings) -> MemoryLayout:
    width = 4 if settings.precision == "float32" else 2
    return MemoryLayout(settings.precision, settings.cache_type, width, BLOCK_TOKENS)


def _plan_embedding(
    settings: ServeSettings, layout: MemoryLayout, embedding: EmbeddingPlan
) -> ServePlan:
    needed = embedding.total_bytes(layout, settings.step_tokens)
    budget = settings.memory_budget or needed
    if budget < needed:
        raise NoRoom(
            f"the memory budget of {budget >> 20} MiB is too small: this embedding model takes "
            f"{(needed >> 20) + 1} MiB"
        )
    return ServePlan(settings, embedding, embedding.longest, budget, needed)
