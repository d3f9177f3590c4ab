"""The walks of `docs.walks` against the code: every step exists and is reached as it is said."""

import ast
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from control.desired import DesiredArm, DesiredRoute, DesiredState
from docs.walks import CHAT, GRPC_INFER, REST_INFER, WALKS, Step, Walk
from support.access import Gated, gated

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"((?:server|schedulers|backends|control|repository)(?:\.\w+)+)(?::\w+)?")

PROCESSES = ("server.gateway", "server.control_process.main", "schedulers.llm.engine.process")
"""What each of our processes is put together by."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())


@cache
def known(module: str) -> frozenset[str]:
    """What a module imports, wherever in it, or names in a text, to be imported or run; itself."""
    found = {module}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Constant) and (named := _NAMED.fullmatch(str(node.value))):
            found.add(named[1])
    return frozenset(found)


def body(step: Step) -> ast.AST | None:
    """The step's function, nested ones included; None where there is none."""
    inside: ast.AST = tree(step.module)
    for name in step.function.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        named = (one for one in ast.iter_child_nodes(inside) if isinstance(one, kinds))
        found = next((one for one in named if one.name == name), None)
        if found is None:
            return None
        inside = found
    return inside


@cache
def names(module: str) -> frozenset[str]:
    """What the code of a module names, and texts that may name a class or a method."""
    found: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.rpartition(":")[2])
    return frozenset(found)


@cache
def reachable(module: str) -> frozenset[str]:
    """Of our modules, what it imports directly or through others."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        one = ahead.pop()
        if one not in found and (ROOT / (one.replace(".", "/") + ".py")).is_file():
            found.add(one)
            ahead += known(one)
    return frozenset(found)


def _meet(module: str, crossed: set[str]) -> bool:
    """Whether one process puts the module and one that was crossed together."""
    return any(module in reachable(root) and crossed & reachable(root) for root in PROCESSES)


def is_reached(step: Step, before: tuple[Step, ...]) -> bool:
    """Whether an earlier step leads to this one: the last one, or one that waits for it."""
    *_, owner, name = ["", *step.function.split(".")]
    called = owner if name.startswith("__") else name
    crossed = {one.module for one in before}
    if step.message:
        return step.message in known(step.module) and any(
            step.message in known(module) for module in crossed
        )
    calling = {module for module in crossed if called in names(module)}
    if step.via:
        handed_in = step.module in known(step.via) and {owner, name} & names(step.via)
        return bool(handed_in) and (bool(calling) or _meet(step.via, crossed))
    return step.module in crossed or any(step.module in known(module) for module in calling)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_every_step_of_a_walk_exists(walk: Walk) -> None:
    assert [step.at for step in walk.steps if body(step) is None] == []


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_every_step_of_a_walk_is_reached_from_an_earlier_one(walk: Walk) -> None:
    steps = enumerate(walk.steps[1:], 1)
    assert [step.at for n, step in steps if not is_reached(step, walk.steps[:n])] == []


HANDED_BESIDE = {
    "server.openai.language_inference:ResolvedModel": "who answers",
    "server.served_version:ServedVersion": "who answers",
    "server.openai.generation_run:GenerationSpec": "the requests are made of it",
    "server.openai.language_inference:PendingReply": "what the answer is awaited from",
    "server.openai.generation_run:ChunkEncoder": "what writes the answer",
    "repository.process.channel:ChannelMessage": "the bytes of a message",
    "backends.llm.span:Span": "the base of Chunk",
}
"""Values in the signatures of a chat's steps that carry neither the request nor a token."""


@cache
def class_of(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """Where a class of ours that a module knows by this name is defined, and its definition."""
    if not (ROOT / (module.replace(".", "/") + ".py")).is_file():
        return None
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return f"{module}:{name}", node
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                if (one.asname or one.name) == name:
                    return class_of(node.module, one.name)
    return None


def is_value(node: ast.ClassDef) -> bool:
    """Whether it is a frozen dataclass, a Struct or a NamedTuple."""
    kinds = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    decorated = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    return decorated or bool(kinds & {"Struct", "NamedTuple"})


def handed(step: Step) -> set[str]:
    """The classes of values that a step takes and gives, as far as its signature names them."""
    function = body(step)
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef), step.at
    arguments = [*function.args.args, *function.args.kwonlyargs]
    hints = [one.annotation for one in arguments if one.annotation is not None]
    hints += [function.returns] if function.returns is not None else []
    named = {name for hint in hints for name in re.findall(r"\w+", ast.unparse(hint))}
    found = (class_of(step.module, name) for name in named)
    return {one[0] for one in found if one is not None and is_value(one[1])}


def test_what_carries_a_chat_from_its_tokens_to_the_wire_is_what_its_steps_hand_on() -> None:
    first = next(n for n, one in enumerate(CHAT.steps) if one.function == "generate")
    found = set().union(*map(handed, CHAT.steps[first:]))
    single = {carrier.at for carrier in CHAT.carriers if not carrier.of}
    several = {carrier.at for carrier in CHAT.carriers if carrier.of}
    state = {
        "schedulers.llm.gateway.engines:EngineHandle",
        "server.openai.answers.completion_choice:CompletionChoice",
    }
    assert found - several - HANDED_BESIDE.keys() - state == single


def test_a_type_that_holds_several_of_another_is_a_message_or_a_plan_of_them() -> None:
    for carrier in CHAT.carriers:
        if carrier.of:
            found = class_of(*carrier.at.split(":"))
            assert found is not None, carrier.at
            assert carrier.of in ast.unparse(found[1]), carrier.at


class Recorder:
    """A profile function for `threading.setprofile`: which of our functions were called, each with
    the moment of its first call, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.called: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(str(ROOT)):
            path = Path(code.co_filename).relative_to(ROOT).with_suffix("")
            at = f"{'.'.join(path.parts)}:{code.co_qualname}"
            self.called.setdefault(at, len(self.called))


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[Gated, Recorder]]:
    """Open listeners over a route, all of whose threads are recorded."""
    recorder = Recorder()
    threading.setprofile(recorder)
    try:
        with gated(models=("first", "second")) as listeners:
            arms = (DesiredArm("a", "first", 1, "", 5_000), DesiredArm("b", "second", 1, "", 5_000))
            route = DesiredRoute("public", arms, "salt", unit="header:x-user")
            listeners.on_loop(
                lambda: listeners.dataplane.routing.use(DesiredState(routes=(route,)))
            )
            yield listeners, recorder
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


def by_rest(listeners: Gated) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    body, user = json.dumps({"inputs": [tensor]}), {"x-user": "ada"}
    line.request("POST", "/v2/models/public/infer", body, user)
    assert line.getresponse().status == 200
    line.close()


def by_grpc(listeners: Gated) -> None:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 2])
    message = pb.ModelInferRequest(model_name="public", inputs=[tensor])
    message.raw_input_contents.append(np.array([1, 2], np.float32).tobytes())
    with grpc.insecure_channel(listeners.grpc) as channel:
        stubs.GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=60)


NOT_HERE = {"server.fleet.fleet:Fleet.get", "schedulers.instance_thread:InstanceThread._work"}
"""A shelf stands in for the fleet, and a lane's thread runs since the listeners were opened."""


@pytest.mark.parametrize(
    ("walk", "ask", "before"), [(REST_INFER, by_rest, 2), (GRPC_INFER, by_grpc, 0)]
)
def test_a_request_crosses_the_steps_of_its_walk_in_their_order(
    recorded: tuple[Gated, Recorder], walk: Walk, ask: Callable[[Gated], None], before: int
) -> None:
    """`before`: requests that came already; REST knows a body and its answer from then on."""
    listeners, recorder = recorded
    for _ in range(before):
        ask(listeners)
    recorder.called.clear()
    recorder.on = True
    ask(listeners)
    recorder.on = False
    expected = [step.at for step in walk.steps if step.at not in NOT_HERE]
    assert sorted(expected, key=lambda at: recorder.called.get(at, -1)) == expected
    assert not set(expected) - set(recorder.called)
