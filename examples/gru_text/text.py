"""What the network learns by heart, and its characters. Written for this example."""

TEXT = (
    "the fox asks the owl who wakes in the night. the owl tells the fox of a lamp and its light. "
    "the lamp has a cord and the cord has a knot. the mouse ties it tight and the fox ties it not. "
    "the bear builds a boat of a barrel and rope. the otter rides it down the long muddy slope. "
    "the goose keeps a list of all things that are round. the moon and a plum and a coin that she "
    "found. the hare tells a story that nobody knows. it ends where it starts, and so on it goes. "
)
CHARACTERS = "".join(sorted(set(TEXT)))


def numbers_of(text: str) -> list[int]:
    """Each character's number. Raises ValueError for one that the network does not know."""
    return [CHARACTERS.index(one) for one in text]
