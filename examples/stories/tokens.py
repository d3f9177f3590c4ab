"""The tokenizer, trained on the stories, and how a conversation is written down with it."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from examples.stories.tales import Turn, story, talk

BEGIN, END = "<|begin|>", "<|end|>"
SPECIAL = (BEGIN, END, "<|system|>", "<|user|>", "<|assistant|>")
BEGIN_ID, END_ID = 0, 1
VOCABULARY = 1024
TALKS = 0.85
"""Share of what is learnt that is conversation; the rest is a story by itself."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('this model knows the roles system, user and assistant, not ' "
    "+ message.role) }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(seed: int, texts: int = 4000) -> Tokenizer:
    """Byte-level BPE of at most VOCABULARY tokens; any text can be written in it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_said(Random(seed), texts), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, BEGIN_ID)]
    )
    return tokenizer


def documents(seed: int, count: int) -> Iterator[str]:
    """`count` stories and conversations, marked as the chat template marks them."""
    draw = Random(seed)
    for _ in range(count):
        if draw.random() < TALKS:
            yield BEGIN + written(talk(draw))
        else:
            yield BEGIN + story(draw) + END


def written(turns: Iterable[Turn]) -> str:
    """A conversation as CHAT_TEMPLATE writes it, without its beginning."""
    return "".join(f"<|{turn.role}|>{turn.text}{END}" for turn in turns)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """All texts in one row of tokens."""
    rows = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [token for row in rows for token in row.ids]


def _said(draw: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield from (turn.text for turn in talk(draw))
