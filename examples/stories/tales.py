"""The text the model learns from: little stories, made up by a grammar, and talk about them.

Nothing is copied from anywhere, so the text is as free as this repository. The same seed makes the
same text.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

ANIMALS = {
    "fox": ("Fern", "Rusty", "Vix", "Amber"),
    "owl": ("Olive", "Hoot", "Luna", "Barnaby"),
    "hare": ("Hazel", "Dash", "Clover", "Bram"),
    "bear": ("Bruno", "Maple", "Honey", "Otto"),
    "mouse": ("Pip", "Tilly", "Crumb", "Nell"),
    "otter": ("Ripple", "Finn", "Pearl", "Splash"),
    "badger": ("Brock", "Thistle", "Mossy", "Greta"),
    "frog": ("Puddle", "Fergus", "Lily", "Bounce"),
    "goose": ("Gretel", "Gus", "Feather", "Mabel"),
    "squirrel": ("Acorn", "Skip", "Rowan", "Twig"),
    "hedgehog": ("Prickle", "Bramble", "Spike", "Dot"),
    "cat": ("Minka", "Tom", "Velvet", "Socks"),
}
PLACES = (
    "in the deep forest", "by the quiet river", "under the old bridge", "on the green hill",
    "near the windy sea", "behind the red barn", "at the edge of the village", "in a hollow tree",
)  # fmt: skip


class Quest(NamedTuple):
    """What a story is about: the thing, why it is out of reach, how two friends get to it."""

    thing: str
    trouble: str
    help: str


QUESTS = (
    Quest("a golden apple", "it hung too high in the tree", "stood on each other's shoulders"),
    Quest("a lost red kite", "the wind had carried it away", "followed the wind across the fields"),
    Quest("a pot of honey", "the bees were angry", "sang until the bees fell asleep"),
    Quest("a warm blanket", "the winter was cold", "gathered wool from the fence"),
    Quest("a little boat", "there was a hole in it", "closed the hole with wax and leaves"),
    Quest("the brightest star", "the clouds were in the way", "waited until the clouds were gone"),
    Quest("a silver key", "it lay at the bottom of the pond", "made a hook from a bent twig"),
    Quest("a basket of berries", "the bushes were full of thorns", "picked them one by one"),
    Quest("a new drum", "nobody knew how to make one", "built one from a bucket and some string"),
    Quest("a lantern", "the path was dark", "caught the light of a hundred fireflies"),
)
MOODS = ("small", "brave", "clever", "shy", "kind", "curious")
ENDINGS = (
    "From that day on, {hero} and {friend} were best friends.",
    "That night {hero} slept well and dreamed of {thing}.",
    "And if you walk there today, you may still hear them laugh.",
    "{hero} never forgot that two can do more than one.",
)
FAREWELLS = ("The end.", "And that is the end of the story.")
GREETINGS = ("Hello!", "Hi!", "Good morning!", "Hello there!")
WHO = ("Who are you?", "What are you?", "What can you do?")
MORE = ("Another one, please.", "Tell me another story.", "One more!", "Tell me one more.")
THANKS = ("Thank you!", "Thanks!", "That was nice.")
ASKED = (
    "Tell me a story about", "Please tell me a story about", "tell me a story about",
    "I want a story about", "Write a story about",
)  # fmt: skip
SYSTEM = ("You tell short stories.", "You are a helpful assistant.", "Be kind and brief.")
NAMES_ITSELF = (
    "I am a small language model. I know little stories about animals. "
    "Ask me for one about a {animal}!"
)


class Turn(NamedTuple):
    """One message: who speaks (system, user or assistant), and what is said."""

    role: str
    text: str


def story(draw: Random, animal: str = "", second: str = "", place: str = "") -> str:
    """A story of eight to ten sentences; what is not given is drawn."""
    animal = animal or draw.choice(tuple(ANIMALS))
    second = second or draw.choice([one for one in ANIMALS if one != animal])
    hero = draw.choice(ANIMALS[animal])
    friend = draw.choice([name for name in ANIMALS[second] if name != hero])
    quest = draw.choice(QUESTS)
    words = {
        "hero": hero, "friend": friend, "animal": _a(animal), "second": _a(second),
        "place": place or draw.choice(PLACES), "mood": _a(draw.choice(MOODS) + " " + animal),
        **quest._asdict(),
    }  # fmt: skip
    return " ".join(sentence.format(**words) for sentence in _sentences(draw))


def _sentences(draw: Random) -> Iterator[str]:
    yield draw.choice(
        (
            "Once upon a time there was {mood} named {hero}.",
            "There once was {mood} called {hero}.",
            "Long ago there lived {mood} whose name was {hero}.",
        )
    )
    yield draw.choice(("{hero} lived {place}.", "Every day {hero} played {place}."))
    yield draw.choice(
        ("One morning {hero} wished for {thing}.", "One day {hero} set out to find {thing}.")
    )
    yield draw.choice(("But {trouble}.", "It was not easy, because {trouble}."))
    yield draw.choice(
        (
            "{hero} sat down and cried.",
            "{hero} thought for a long time.",
            "{hero} tried again and again.",
        )
    )
    yield draw.choice(
        (
            "Then {second} named {friend} came along.",
            "Just then {second} called {friend} passed by.",
        )
    )
    yield draw.choice(
        (
            '"Can I help you?" asked {friend}.',
            '"Why are you so sad?" asked {friend}.',
            '"Let us try it together," said {friend}.',
        )
    )
    yield "So {hero} and {friend} {help}."
    yield draw.choice(("At last they had {thing}.", "In the end {hero} held {thing}."))
    yield draw.choice(ENDINGS)
    yield draw.choice(FAREWELLS)


def talk(draw: Random) -> list[Turn]:
    """A conversation of one to three questions, each followed by its answer."""
    turns = [Turn("system", draw.choice(SYSTEM))] if draw.random() < 0.15 else []
    if draw.random() < 0.15:
        turns += _greeting(draw)
    animal = draw.choice(tuple(ANIMALS))
    turns += _request(draw, animal)
    if draw.random() < 0.2:
        turns += [Turn("user", draw.choice(MORE)), Turn("assistant", story(draw, animal))]
    if draw.random() < 0.1:
        welcome = "You are welcome! Shall I tell you another story?"
        turns += [Turn("user", draw.choice(THANKS)), Turn("assistant", welcome)]
    return turns


def _greeting(draw: Random) -> list[Turn]:
    about = NAMES_ITSELF.format(animal=draw.choice(tuple(ANIMALS)))
    if draw.random() < 0.5:
        return [Turn("user", draw.choice(WHO)), Turn("assistant", about)]
    return [Turn("user", draw.choice(GREETINGS)), Turn("assistant", "Hello! " + about)]


def _request(draw: Random, animal: str) -> list[Turn]:
    asked = draw.choice(ASKED)
    kind = draw.random()
    if kind < 0.05:
        return [Turn("user", "Tell me a story."), Turn("assistant", story(draw, animal))]
    if kind < 0.4:
        return [Turn("user", f"{asked} {_a(animal)}."), Turn("assistant", story(draw, animal))]
    if kind < 0.75:
        second = draw.choice([one for one in ANIMALS if one != animal])
        told = story(draw, animal, second)
        return [Turn("user", f"{asked} {_a(animal)} and {_a(second)}."), Turn("assistant", told)]
    place = draw.choice(PLACES)
    told = story(draw, animal, place=place)
    return [Turn("user", f"{asked} {_a(animal)} {place}."), Turn("assistant", told)]


def _a(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun
