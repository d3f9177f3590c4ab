"""Folders of language models that nothing here can serve, told from their files' names. Pure."""

from collections.abc import Collection

ADAPTER = "adapter_config.json"
_WHOLE = "give a whole checkpoint: config.json, *.safetensors and tokenizer.json"


def foreign_weights(names: Collection[str]) -> str:
    """What a folder with these files holds instead of a checkpoint, and what would work; "" where
    it may well be one."""
    if any(_is_weights(name) for name in names):
        return ""
    if ADAPTER in names:
        return (
            f"these files are an adapter (LoRA, {ADAPTER}) and no model; merge it into its base "
            f"model, which peft's merge_and_unload does, and {_WHOLE}"
        )
    gguf = sorted(name for name in names if name.endswith(".gguf"))
    if gguf:
        return (
            f"the weights are in GGUF ('{gguf[0]:.80}'), which is not read; {_WHOLE}, as the "
            "original is published"
        )
    return ""


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and not name.startswith("adapter_")
