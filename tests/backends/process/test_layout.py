import os

import ml_dtypes
import numpy as np
import pytest

from backends.process.layout import TensorBlock, kept_bytes, merged, pack, unpack
from backends.process.message_tensors import pack_message
from backends.process.messages import BatchExecuted, BatchFailed, WorkerError, decode, encode
from backends.process.region import RegionReader, RegionWriter, message_region
from repository.config.tensors import DATA_TYPES, Array, DataType


@pytest.mark.parametrize("row", DATA_TYPES, ids=lambda row: row.name)
def test_every_data_type_crosses_shared_memory_bit_exactly(row: DataType) -> None:
    name, dtype = row.name, row.dtype
    if name == "BYTES":
        array = np.array([[b"", b"a\0b", "ü".encode()]], np.object_)
    else:
        bits = np.arange(dtype.itemsize * 6, dtype=np.uint8) % (2 if name == "BOOL" else 251)
        array = bits.view(dtype).reshape(2, 3)
    back = _through_memory([{"X": array}, {}, {"X": array[:1]}])
    assert back[0]["X"].tobytes() == array.tobytes() or back[0]["X"].tolist() == array.tolist()
    assert back[0]["X"].dtype == array.dtype
    assert back[1] == {}
    assert back[2]["X"].shape == array[:1].shape


@pytest.mark.parametrize("row", DATA_TYPES, ids=lambda row: row.name)
@pytest.mark.parametrize("elements", [1, 30_000])
def test_every_data_type_crosses_with_a_message_of_its_own(row: DataType, elements: int) -> None:
    array = np.zeros((1, elements), row.dtype) if row.itemsize else _strings(elements)
    odd = np.arange(6, dtype=np.int16).reshape(2, 3).T
    blocks, data, fd = pack_message({"odd": odd, "X": array, "none": array[:, :0]})
    assert (fd >= 0) == (array.nbytes > 16 * 1024)
    back = unpack(blocks, 1, message_region(data, fd))[0]
    assert back["odd"].tolist() == odd.tolist()
    assert back["X"].dtype == array.dtype
    assert back["X"].tolist() == array.tolist()
    assert back["none"].shape == (1, 0)


def _strings(elements: int) -> Array:
    array = np.empty((1, elements), np.object_)
    array[:] = b"x"
    return array


def test_a_bf16_nan_keeps_its_payload() -> None:
    array = np.array([0x7FC1, 0xFF81], np.uint16).view(ml_dtypes.bfloat16)
    back = _through_memory([{"X": array}])[0]["X"]
    assert back.view(np.uint16).tolist() == [0x7FC1, 0xFF81]


def test_strided_scalar_and_empty_arrays_cross_as_they_are() -> None:
    strided = np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2]
    scalar, empty = np.array(7, np.int64), np.empty((0, 5), np.float32)
    strings = np.empty((0,), np.object_)
    tensors = {"A": strided, "B": scalar, "C": empty, "D": strings}
    back = _through_memory([tensors])[0]
    assert all(np.array_equal(back[name], tensors[name]) for name in tensors)


def test_rows_of_one_input_lie_behind_one_another() -> None:
    outbox = RegionWriter()
    blocks = pack([{"X": np.full((n, 2), n, np.int8)} for n in (1, 3)], outbox)
    whole = merged(blocks)
    assert whole is not None
    stacked = unpack(whole, 1, outbox.reserve(0))[0]["X"]
    assert stacked.tolist() == [[1, 1], [3, 3], [3, 3], [3, 3]]
    outbox.close()


def test_rows_of_different_shapes_are_not_merged() -> None:
    assert merged([TensorBlock("X", "FP32", 0, ((1, 2), (1, 3)))]) is None
    assert merged([TensorBlock("X", "FP32", 0, ((1, 2), None))]) is None


def test_blocks_beyond_their_region_are_refused() -> None:
    region = np.zeros(64, np.uint8)
    with pytest.raises((ValueError, TypeError)):
        unpack([TensorBlock("X", "FP32", 0, ((17,),))], 1, region)
    region[:4] = 255
    with pytest.raises(ValueError, match="ends behind its region"):
        unpack([TensorBlock("X", "BYTES", 0, ((1,),))], 1, region)


@pytest.mark.parametrize("datatype", ["UINT8", "BYTES"])
@pytest.mark.parametrize("offset", [-64, 65, 2**63 - 1])
def test_offset_outside_the_region_is_refused_before_numpy_reads_there(
    datatype: str, offset: int
) -> None:
    region = np.zeros(256, np.uint8)[64:128]
    blocks = [TensorBlock("X", datatype, offset, ((4,),))]
    for read in (lambda: unpack(blocks, 1, region), lambda: kept_bytes(blocks, region)):
        with pytest.raises(ValueError, match=r"negative offset|ends behind its region"):
            read()


@pytest.mark.parametrize("datatype", ["UINT8", "BYTES"])
@pytest.mark.parametrize("shapes", [((-1, 4),), ((2**61 + 1,),), ((2**63 - 8,),), ((8,), (-8,))])
def test_dimensions_that_no_region_has_are_refused_before_numpy_multiplies_them(
    datatype: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    region = np.zeros(64, np.uint8)
    blocks = [TensorBlock("Y", datatype, 0, ((1,),) * len(shapes))]
    blocks.append(TensorBlock("X", datatype, 32, shapes))
    for read in (lambda: unpack(blocks, len(shapes), region), lambda: kept_bytes(blocks, region)):
        with pytest.raises(ValueError, match=r"'X' (has a negative|ends behind)"):
            read()


def test_memory_that_could_be_shrunk_is_refused() -> None:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="not sealed"):
        RegionReader().accept(fd)


def test_messages_survive_the_wire() -> None:
    message = BatchFailed(WorkerError("FaultyModel", "über", ""), True)
    assert decode(encode(message)) == message


def test_half_a_surrogate_pair_arrives_as_the_replacement_character() -> None:
    said = BatchExecuted({1: WorkerError("FaultyModel", "\udc80 text", "")}, (), 1, 2, 3, {}, False)
    meant = BatchExecuted(
        {1: WorkerError("FaultyModel", "\ufffd text", "")}, (), 1, 2, 3, {}, False
    )
    assert decode(encode(said)) == meant


def _through_memory(members: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    outbox, inbox = RegionWriter(), RegionReader()
    blocks = [TensorBlock(*block) for block in pack(members, outbox)]
    inbox.accept(outbox.take_fd())
    back = unpack(blocks, len(members), inbox.view())
    outbox.close()
    return back
