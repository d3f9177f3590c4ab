from collections.abc import Sequence

import numpy as np
import pytest

from backends.process.batch_regions import BatchReader, BatchWriter
from backends.process.layout import TensorBlock
from backends.seam import Tensors
from repository.config.tensors import Array


@pytest.fixture
def link() -> "Link":
    return Link()


class Link:
    """A writer and the reader of its region, which is accepted when it is new."""

    def __init__(self) -> None:
        self.writer = BatchWriter(member_bytes=1)
        self.reader = BatchReader()

    def send(self, members: Sequence[Tensors]) -> tuple[TensorBlock, ...]:
        blocks = self.writer.pack(members)
        if (fd := self.writer.take_fd()) >= 0:
            self.reader.accept(fd)
        return blocks

    def tensors(self, members: Sequence[Tensors]) -> list[dict[str, Array]]:
        layout = self.reader.layout(self.send(members), len(members))
        return layout.tensors(self.reader.region)


def test_batches_of_one_layout_and_of_others_arrive_as_they_were_sent(link: Link) -> None:
    kinds = [np.float32, np.float32, np.float32, np.int32, np.float32]
    sizes = [(2,), (2,), (2, 3), (2, 3), (2, 3), (2,), (2, 3), (40_000,), (2,)]
    for turn in range(40):
        members = [
            {
                name: np.full((1, sizes[(turn // 4 + index) % len(sizes)][0]), turn + index, kind)
                for name in ("A", "B")[: 1 + turn // 3 % 2]
            }
            for index, kind in enumerate([kinds[turn // 5 % len(kinds)]] * (1 + turn % 3))
        ]
        for sent, arrived in zip(members, link.tensors(members), strict=True):
            assert {n: (a.dtype, a.tolist()) for n, a in sent.items()} == {
                n: (a.dtype, a.tolist()) for n, a in arrived.items()
            }


def test_text_and_members_without_an_input_arrive_among_batches_like_the_last(link: Link) -> None:
    text = np.array([[b"", b"two"]], np.object_)
    number = np.ones((1, 2), np.float32)
    for members in ([{"T": text}], [{"T": text[:, 1:]}], [{"T": text}, {}], [{}, {"X": number}]):
        for _ in range(3):
            arrived = link.tensors(members)
            assert [{n: a.tolist() for n, a in one.items()} for one in arrived] == [
                {n: a.tolist() for n, a in one.items()} for one in members
            ]


def test_a_layout_is_kept_until_the_region_changes(link: Link) -> None:
    small, large = [{"X": np.zeros((1, 2), np.int8)}], [{"X": np.zeros((1, 70_000), np.int8)}]
    first = link.reader.layout(link.send(small), 1)
    assert link.reader.layout(link.send(small), 1) is first
    link.send(large)
    assert link.reader.layout(link.send(small), 1) is not first


def test_member_bytes_lie_before_the_tensors_and_are_not_written(link: Link) -> None:
    members = [{"X": np.full((1, 100), 7, np.uint8)}] * 3
    for _ in range(3):
        link.send(members)
        assert link.writer.region[:3].tolist() == [0, 0, 0]


def test_who_keeps_an_array_of_the_region_holds_it_and_copies_do_not(link: Link) -> None:
    members = [{"X": np.ones((1, 4), np.float32)}]
    layout = link.reader.layout(link.send(members), 1)
    copied = layout.copies(link.reader.region)
    assert not link.reader.is_held
    row = layout.tensors(link.reader.region)[0]["X"][0, 1:]
    assert link.reader.is_held
    link.writer.close()
    assert link.tensors([{"X": np.zeros((1, 4), np.float32)}])[0]["X"].tolist() == [[0, 0, 0, 0]]
    assert row.tolist() == copied[0]["X"][0, 1:].tolist() == [1, 1, 1]
    assert not link.reader.is_held


def test_members_are_seen_as_one_where_their_rows_can_be_stacked(link: Link) -> None:
    rows = [{"X": np.full((n, 2), n, np.int8)} for n in (1, 3)]
    for _ in range(2):
        layout = link.reader.layout(link.send(rows), 2)
        whole = layout.stacked(link.reader.region)
        assert whole is not None
        assert whole["X"].tolist() == [[1, 1], [3, 3], [3, 3], [3, 3]]
    apart = [{"X": np.zeros((1, 2), np.int8)}, {"X": np.zeros((1, 3), np.int8)}]
    assert link.reader.layout(link.send(apart), 2).stacked(link.reader.region) is None


def test_blocks_that_fit_no_region_are_refused(link: Link) -> None:
    link.send([{"X": np.zeros((1, 16), np.uint8)}])
    size = len(link.reader.region)
    over = tuple(TensorBlock(name, "UINT8", 0, ((size - 64,),)) for name in "AB")
    for blocks in (over, (TensorBlock("X", "FP32", 0, ((size,),)),)):
        with pytest.raises(ValueError, match=r"over one another|ends behind"):
            link.reader.layout(blocks, 1)
    with pytest.raises(ValueError, match="zip"):
        link.reader.layout((TensorBlock("X", "UINT8", 0, ((1,), (1,))),), 1)
