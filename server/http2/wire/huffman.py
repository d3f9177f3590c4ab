"""The Huffman code of HPACK (RFC 7541, appendix B), read four bits at a time. Pure.

The code is canonical: the lengths alone say what it is.
"""

from typing import NamedTuple

_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
    "1e"
)
"""Bits per symbol; 256 is the end-of-string symbol, which must never be written."""

_END_OF_STRING = 256
_INVALID = -1


class HuffmanError(Exception):
    """Bytes that are no Huffman-coded string."""


class _HuffmanTransition(NamedTuple):
    """Where four bits lead from one state, and the octet they complete, if any."""

    state: int
    octet: bytes


def decode(data: bytes) -> bytes:
    """The coded string. Raises HuffmanError for the end-of-string symbol and for bad padding."""
    state = 0
    octets: list[bytes] = []
    for octet in data:
        state, first = _STEPS[state << 4 | octet >> 4]
        if state == _INVALID:
            break
        state, second = _STEPS[state << 4 | octet & 15]
        if state == _INVALID:
            break
        octets.append(first + second)
    if state == _INVALID:
        raise HuffmanError("the end-of-string symbol inside a string")
    if state not in _PADDING:
        raise HuffmanError("padding that is not the beginning of the end-of-string symbol")
    return b"".join(octets)


def _codes() -> list[tuple[int, int, int]]:
    """(length, code, symbol), shortest first."""
    order = sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol))
    codes = []
    code, length = 0, _LENGTHS[order[0]]
    for symbol in order:
        code <<= _LENGTHS[symbol] - length
        length = _LENGTHS[symbol]
        codes.append((length, code, symbol))
        code += 1
    return codes


def _tree() -> list[list[int]]:
    """Inner nodes from the root 0: each [zero, one], another node or -2 - symbol."""
    nodes = [[0, 0]]
    for length, code, symbol in _codes():
        node = 0
        for bit in range(length - 1, 0, -1):
            branch = code >> bit & 1
            if not nodes[node][branch]:
                nodes.append([0, 0])
                nodes[node][branch] = len(nodes) - 1
            node = nodes[node][branch]
        nodes[node][code & 1] = -2 - symbol
    return nodes


def _step(nodes: list[list[int]], node: int, nibble: int) -> _HuffmanTransition:
    octet = b""
    for bit in (3, 2, 1, 0):
        node = nodes[node][nibble >> bit & 1]
        if node < 0:
            symbol = -2 - node
            if symbol == _END_OF_STRING:
                return _HuffmanTransition(_INVALID, b"")
            octet, node = bytes((symbol,)), 0  # no code is shorter than five bits
    return _HuffmanTransition(node, octet)


def _padding(nodes: list[list[int]]) -> frozenset[int]:
    """States that up to seven one-bits lead to from the root."""
    states = [0]
    for _ in range(7):
        states.append(nodes[states[-1]][1])
    return frozenset(states)


_NODES = _tree()
_STEPS = [_step(_NODES, node, nibble) for node in range(len(_NODES)) for nibble in range(16)]
_PADDING = _padding(_NODES)
