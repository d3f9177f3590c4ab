"""Does the JSON of a torch.export program say only what torch.export itself writes? Pure.

Nearly every text in it reaches an interpreter when torch loads it: `in_spec` and `out_spec` import
modules (enums, defaultdicts), `guards_code` is executed, sizes are evaluated, targets are any
dotted name below `torch`, and names stand unquoted in Python source that torch.fx generates. So
each text must be of the form that its field has, and a field that is not known may hold none.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)?")
_DOTTED = re.compile(r"([A-Za-z_0-9]+(\.[A-Za-z_0-9]+)*)?")
_WORDS = re.compile(r"[A-Za-z_0-9 .:/+<=-]{1,200}")
_NOT_FINITE = re.compile(r"-?Infinity|-?inf|NaN|nan")

_SYMBOL = re.compile(r"Symbol\('[a-z]+[0-9]+'(, [a-z]+=(True|False))*\)")
_NUMBER = re.compile(r"[a-z]{1,3}[0-9]+|[0-9]+(\.[0-9]+)?|True|False")
_FUNCTIONS = re.compile(
    r"Add|Mul|Pow|Integer|Rational|Float|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|IntTrueDiv|Eq|Ne"
    r"|GreaterThan|LessThan|StrictGreaterThan|StrictLessThan|And|Or|Not"
)
_WORD = re.compile(r"[A-Za-z_0-9.]+")
_OPERATORS = frozenset(" +-*/(),<>=&|~")

# `aten` has operators that read and write files of the machine: from_file, save.
_CALLED = re.compile(
    r"torch\.ops\.aten\.(?!from_file|save|load|name\b|_dir\b)"
    r"(_?[A-Za-z][A-Za-z_0-9]*|_+[a-z][a-z_0-9]*[a-z0-9]_?|__i?(and|or|xor|lshift|rshift)__)"
    r"\.[A-Za-z][A-Za-z_0-9]*"
    r"|torch\.ops\.(prims|quantized|quantized_decomposed)(\.[A-Za-z][A-Za-z_0-9]*){1,2}"
    r"|torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan|out_dtype"
    r"|strict_mode|flex_attention|invoke_subgraph|hints_wrapper|wrap_with_autocast"
    r"|wrap_with_set_grad_enabled)"
    r"|_operator\.(add|sub|mul|neg|pos|mod|pow|floordiv|truediv|eq|ne|lt|le|gt|ge|and_|or_|not_"
    r"|getitem)|math\.(ceil|floor|trunc|sqrt)|torch\.sym_[a-z_0-9]+"
)

# torch writes a guard into Python source twice, once with its line ends taken out and its strings
# evaluated; so the text itself must be as plain as what it means.
_GUARD = re.compile(r"[A-Za-z_0-9 .:/+<>=!()\[\]',*&|~%^-]{1,4096}")

_SEQUENCES = ("builtins.tuple", "builtins.list")
_MAPPINGS = ("builtins.dict", "collections.OrderedDict")

_GUARD_NODES = (
    *(ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Load),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)

_METADATA = frozenset(
    ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom")
)
"""Notes on where a node comes from, which torch only looks up or keeps."""

_EMPTY_FIELDS = ("treespec_namedtuple_fields", "custom_obj_values")
"""Fields of objects that only a pickle could bring, and of classes that would be made."""


def is_plain_program(program: Any) -> bool:
    """Whether loading `program` (the parsed models/model.json) runs nothing but tensor operations
    that stay within it. Raises ValueError, RecursionError for what torch could not read either."""
    return isinstance(program, dict) and _is_plain(program, "")


def is_plain_payload(payload: Any) -> bool:
    """The same of an entry of the weights' or the constants' config."""
    return isinstance(payload, dict) and _is_plain(payload, "")


def _is_plain(value: Any, field: str) -> bool:
    if isinstance(value, str):
        return field in _TEXTS and _TEXTS[field](value)
    if isinstance(value, list):
        return all(_is_plain(one, field) for one in value)
    if not isinstance(value, dict):
        return value is None or isinstance(value, (bool, int, float))
    if field == "metadata":
        return value.keys() <= _METADATA and all(isinstance(one, str) for one in value.values())
    if field in _EMPTY_FIELDS:
        return not value
    return all(_is_identifier(name) and _is_plain(one, name) for name, one in value.items())


def _is_identifier(text: str) -> bool:
    return _IDENTIFIER.fullmatch(text) is not None


def _is_dotted(text: str) -> bool:
    return _DOTTED.fullmatch(text) is not None


def _is_words(text: str) -> bool:
    return _WORDS.fullmatch(text) is not None


def _is_called(text: str) -> bool:
    return _CALLED.fullmatch(text) is not None


def _is_not_finite(text: str) -> bool:
    return _NOT_FINITE.fullmatch(text) is not None


def _is_size(text: str) -> bool:
    text = _SYMBOL.sub("s0", text)
    words = _WORD.findall(text)
    is_expression = all(_FUNCTIONS.fullmatch(word) or _NUMBER.fullmatch(word) for word in words)
    return is_expression and set(_WORD.sub("", text)) <= _OPERATORS


def _is_guard(text: str) -> bool:
    """Whether it compares sizes of inputs, such as `L['x'].size()[0] >= 2`, and nothing else."""
    if not _GUARD.fullmatch(text):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, MemoryError):  # the latter where it is nested too deeply
        return False
    return all(_is_guard_node(node) for node in ast.walk(tree))


def _is_guard_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) or (
            isinstance(node.value, str) and _is_words(node.value)
        )
    if isinstance(node, ast.Name):
        return node.id == "L"
    if isinstance(node, ast.Attribute):
        return node.attr in ("size", "stride", "storage_offset")
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and not node.args and not node.keywords
    return isinstance(node, _GUARD_NODES)


def _is_inputs_spec(text: str) -> bool:
    """The tree of `forward`'s arguments: a tuple of positional ones and a dict of those by name,
    whose names torch writes into Python source."""
    tree = _tree(text)
    if not _is_tree(tree):
        return False
    parts = tree["children_spec"]
    if tree["type"] != _SEQUENCES[0] or len(parts) != 2:
        return False
    name = parts[1]
    return name["type"] in _MAPPINGS and all(map(_is_identifier, json.loads(name["context"])))


def _is_tree_spec(text: str) -> bool:
    return _is_tree(_tree(text))


def _tree(text: str) -> Any:
    spec = json.loads(text)
    return spec[1] if isinstance(spec, list) and len(spec) == 2 and spec[0] == 1 else None


def _is_tree(node: Any) -> bool:
    """Tuples, lists and dicts of leaves; every other type has hooks that import or construct."""
    if not isinstance(node, Mapping) or node.keys() != {"type", "context", "children_spec"}:
        return False
    kind, context, children = node["type"], node["context"], node["children_spec"]
    if not isinstance(children, list):
        return False
    if kind is None:
        return context is None and not children
    if kind in _MAPPINGS:
        fits = isinstance(context, str) and _is_keys(json.loads(context), len(children))
    else:
        fits = kind in _SEQUENCES and context == "null"
    return fits and all(map(_is_tree, children))


def _is_keys(keys: Any, count: int) -> bool:
    return (
        isinstance(keys, list)
        and len(keys) == count
        and all(isinstance(key, int) or (isinstance(key, str) and _is_words(key)) for key in keys)
    )


def _is_anything(_: str) -> bool:
    """A text that torch quotes wherever it writes it: an argument of a tensor operation."""
    return True


_TEXTS: dict[str, Callable[[str], bool]] = {
    "target": _is_called,
    "as_operator": _is_called,
    "expr_str": _is_size,
    "guards_code": _is_guard,
    "in_spec": _is_inputs_spec,
    "out_spec": _is_tree_spec,
    **dict.fromkeys(
        ("name", "as_name", "user_input_name", "forward_arg_names", "verifiers", "type"),
        _is_identifier,
    ),
    **dict.fromkeys(
        ("fqn", "parameter_name", "buffer_name", "tensor_constant_name", "path_name"), _is_dotted
    ),
    **dict.fromkeys(("as_string", "as_strings"), _is_anything),
    **dict.fromkeys(("as_float", "as_floats", "as_float_lists", "real", "imag"), _is_not_finite),
    "torch_version": _is_words,
}
"""Field → the form of its text."""
