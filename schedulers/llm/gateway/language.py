"""What the gateway knows of a language model: its text side, and what may be asked of it. No torch.

Made by the fleet beside the scheduler; read by front ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.llm.chat.template import ChatTemplate, read_template
from backends.llm.config.decoder import DecoderConfig
from backends.llm.plan import ServePlan, plan_serving
from backends.llm.tools.formats import ToolFormat
from repository.model import ModelVersion
from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser


@dataclass(frozen=True, slots=True)
class Language:
    """`context`: most tokens of a prompt with its answer. `vocabulary`: how many tokens the model
    knows. `end_ids`: tokens that end an answer. `template`: None where the checkpoint has none.
    `generates`, `embeds`: whether it answers GENERATE, EMBED (`schedulers.llm.generation`).
    `tools`: how it writes calls of tools, None where its template does not tell it of any.
    `content_is_text`: what reads like a control token in a chat's messages stays text.
    `defaults`: of sampling, by name, where a request does not say. `facts`: what it serves with,
    in words, by name."""

    tokeniser: EngineTokeniser
    template: ChatTemplate | None
    context: int
    vocabulary: int
    end_ids: tuple[int, ...]
    generates: bool = True
    embeds: bool = False
    tools: ToolFormat | None = None
    content_is_text: bool = True
    defaults: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def read_language(version: ModelVersion) -> Language:
    """Of a version whose config is complete; blocks. Raises LoadFailed naming the file."""
    plan = plan_serving(version)
    model, template = plan.model, read_template(version.path)
    tools = None if template is None else template.tool_format(plan.settings.tool_format)
    return Language(
        tokeniser=EngineTokeniser(),
        template=template,
        context=plan.context,
        vocabulary=model.vocabulary,
        end_ids=model.end_ids if isinstance(model, DecoderConfig) else (),
        generates=plan.embedding is None,
        embeds=plan.embedding is not None,
        tools=tools,
        content_is_text=plan.settings.content_tokens == "text",
        defaults=plan.defaults,
        facts=_facts(plan, template, tools),
    )


def _facts(
    plan: ServePlan, template: ChatTemplate | None, tools: ToolFormat | None
) -> Mapping[str, str]:
    settings = plan.settings
    found = {
        "context": f"{plan.context:,} tokens",
        "vocabulary": f"{plan.model.vocabulary:,} tokens",
        "precision": settings.precision,
        "memory": f"{plan.budget / 2**20:,.0f} MiB, {plan.least / 2**20:,.0f} MiB at least",
    }
    if plan.embedding is not None:
        return found
    templates = ", ".join(sorted(template.texts)) if template is not None else "none"
    return found | {
        "KV cache": settings.cache_type,
        "runs at once": f"{settings.max_running} sequences",
        "chat template": templates,
        "tool format": tools.name if tools is not None else "none",
    }
