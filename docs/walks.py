"""The walks through Modelyard, function by function, in the order in which they are crossed.

`python -m docs.walks` prints them with counts. They were read off traces of real requests on a
whole server; tests/docs/test_walks.py holds every step, and how it is reached, against the code,
and traces the two that stay in one process anew. A step that also runs for other reasons (a loop
that waits, a frame of something else) may be seen earlier in a trace.
"""

import sys
from typing import NamedTuple


class Step(NamedTuple):
    """`at`: MODULE:FUNCTION or MODULE:CLASS.METHOD. The module of an earlier step imports this one
    and calls it by its name, unless one of these is given.

    `via`: the module that hands the function, or an object with it, to an earlier one. `message`:
    the module of what crosses between two processes, which both sides import.
    """

    at: str
    via: str = ""
    message: str = ""

    @property
    def module(self) -> str:
        return self.at.partition(":")[0]

    @property
    def function(self) -> str:
        return self.at.partition(":")[2]


class Carrier(NamedTuple):
    """A type of values that a step hands to one in another file, with the request or what a step of
    the model brought for it. `at`: MODULE:CLASS. `of`: what it only holds several of, in one
    crossing.
    """

    at: str
    of: str = ""


class Walk(NamedTuple):
    """`steps`: the functions that hand the request, the change or the push on, from the first of
    our code that runs to the last. What such a step asks aside (limits, checks, counts, tables)
    is not named; `crossed` counts those files as well. It was read off the trace: files in which
    something ran that does not run on an idle server. `carriers`: of a language model, in order,
    from when the prompt has become tokens until one is on the wire.
    """

    name: str
    crossed: int
    steps: tuple[Step, ...]
    carriers: tuple[Carrier, ...] = ()

    @property
    def modules(self) -> list[str]:
        """Those crossed, each once, in order."""
        return list(dict.fromkeys(step.module for step in self.steps))


_SCHEDULED = (
    Step("schedulers.batching:BatchScheduler.submit", via="schedulers.build"),
    Step("schedulers.policy.queue:BatchQueue.push"),
    Step("schedulers.batching:BatchScheduler._pump"),
    Step("schedulers.policy.merge:cut"),
    Step("schedulers.policy.cores:CoreTokens.take"),
    Step("schedulers.instance_thread:InstanceThread.start"),
    Step("schedulers.instance_thread:InstanceThread._work"),
    Step("backends.identity:IdentityInstance.execute", via="backends.identity"),
    Step("schedulers.instance_thread:InstanceThread._ended"),
    Step("schedulers.batching:BatchScheduler._done"),
    Step("schedulers.instance_thread:Run.answer"),
    Step("schedulers.reply:Reply.send", via="schedulers.policy.queue"),
)
"""From the data plane to the reply, for a model of the backend `identity`."""

_FOUND = (
    Step("server.dataplane:DataPlane.find_for"),
    Step("server.dataplane:DataPlane.find_route"),
    Step("server.routing.routing:Routing.select"),
    Step("server.routing.routing:Routing.pick"),
    Step("server.dataplane:DataPlane.find_target"),
    Step("server.fleet.fleet:Fleet.get", via="server.gateway"),
    Step("server.dataplane:DataPlane.submit"),
)
"""From a route's name to a loaded version, for a route whose unit or draw decides alone: one with
rules, a kill switch or mirrors asks `server.routing.pick` as well."""

REST_INFER = Walk(
    "REST infer",
    29,
    (
        Step("server.http1.connection:Http1Connection.data_received"),
        Step(
            "server.rest.protocol:InferProtocol.on_headers_complete",
            via="server.rest.inference_listener",
        ),
        Step("server.rest.infer:InferExchange.received"),
        Step("server.rest.envelope:read_envelope"),
        Step("server.rest.infer:InferExchange._submit"),
        Step("server.dataplane:DataPlane.infer"),
        *_FOUND,
        Step("server.rest.infer:InferExchange.decode"),
        Step("server.codec.infer_templates:BodyTemplates.decode"),
        Step("server.codec.infer_templates:TextTemplate.read"),
        Step("server.dataplane:DataPlane.schedule"),
        *_SCHEDULED,
        Step("server.rest.infer:InferExchange._finish"),
        Step("server.codec.infer_templates:AnswerTemplates.encode"),
        Step("server.rest.infer:InferExchange._write"),
    ),
)
"""Of a body that came before, but for its numbers. Another is read by `server.codec.json_infer` and
checked by `server.admit`, and its answer written by the former."""

GRPC_INFER = Walk(
    "gRPC infer",
    39,
    (
        Step("server.http2.connection:Http2Connection.data_received"),
        Step("server.http2.connection:Splitter.feed"),
        Step("server.http2.session:Http2Session.take"),
        Step("server.http2.header_blocks:HeaderBlocks.read"),
        Step("server.http2.calls.service:GrpcService.open", via="server.http2.listener"),
        Step("server.http2.calls.service:UnaryCall.ended"),
        Step("server.grpc.unary:UnaryInfer.__call__", message="server.http2.calls.service"),
        Step("server.dataplane:DataPlane.infer"),
        *_FOUND,
        Step("server.grpc.unary:_UnaryInference.decode", via="server.grpc.unary"),
        Step("server.codec.grpc_infer:decode"),
        Step("server.admit:admit"),
        Step("server.dataplane:DataPlane.schedule"),
        *_SCHEDULED,
        Step("server.grpc.unary:_UnaryInference.answer"),
        Step("server.codec.grpc_infer:encode"),
        Step("server.http2.calls.service:UnaryCall.finish"),
        Step("server.http2.sender:Sender.answer", via="server.http2.stream"),
    ),
)

_TOLD = (
    Step(
        "control.loops.desired_state_feed:DesiredStateFeed.run",
        via="server.control_process.program",
    ),
    Step("control.desired_rows:desired"),
    Step("control.gateways.link:LinkServer.hand", via="server.control_process.program"),
    Step("control.gateways.wire:encode_state"),
    Step("control.gateways.wire:pack_frame"),
    Step("server.desired.link:ControlLink._listen", message="control.gateways.wire"),
    Step("control.gateways.wire:decode_state"),
    Step("server.desired.reconciler:Reconciler.want", via="server.gateway"),
)
"""From the control process's database to the gateway."""

WEIGHT_CHANGE = Walk(
    "weight change, from the control API to the routing table",
    62,
    (
        Step("server.http1.connection:Http1Connection.data_received"),
        Step("control.api.app:admin_app", via="server.control_process.program"),
        Step("control.api.app:_serve", via="control.api.app"),
        Step("control.authentication.identify:identify"),
        Step("control.api.app:let_in"),
        Step("control.api.app:read_body"),
        Step("control.api.resources.routes:weigh", via="control.api.resources.routes"),
        Step("control.sql.database:Database.change", via="control.services"),
        Step("control.rollouts.route_changes:set_weights"),
        Step("control.routes.service:set_weights"),
        Step("control.sql.database:Transaction.desire"),
        Step(
            "control.loops.desired_state_feed:DesiredStateFeed.committed",
            via="server.control_process.program",
        ),
        *_TOLD,
        Step("server.routing.effective:effective"),
        Step("server.routing.routing:Routing.use", via="server.dataplane"),
        Step("server.routing.table:compile_table"),
    ),
)

PUSH = Walk(
    "push over HTTP, until the version is loaded",
    181,
    (
        Step("server.http1.connection:Http1Connection.data_received"),
        Step("control.api.app:admin_app", via="server.control_process.program"),
        Step("control.git.http:GitApp._serve", via="server.control_process.program"),
        Step("control.git.authorization:enter"),
        Step("control.git.http:GitApp._receive"),
        Step("repository.git.receive:SmartHttp.rpc"),
        Step(
            "repository.git.hooks.listener:HookListener._serve",
            via="server.control_process.program",
        ),
        Step(
            "server.control_process.program:ControlServer._answer",
            via="server.control_process.program",
        ),
        Step("control.git.push.pre_receive:PreReceiveHook.decide"),
        Step("repository.git.rules:check_refs"),
        Step("control.git.push.examine:Examiner.examine"),
        Step("control.git.push.draft_builder:DraftBuilder.fill"),
        Step("control.git.push.inspect:Inspector.inspect"),
        Step(
            "server.control_process.version_checks:CheckerProcesses.complete",
            via="server.control_process.program",
        ),
        Step("server.fleet.checks.check:Checker.complete"),
        Step(
            "server.fleet.checks.check_version:main", message="server.fleet.checks.check_messages"
        ),
        Step("control.deployments.pushes:receive"),
        Step("control.git.push.pre_receive:PreReceiveHook.accepted"),
        Step("control.deployments.pushes:accept"),
        Step("control.loops.deployer:Deployer.watch"),
        Step("control.loops.deployer:Deployer._deploy"),
        Step("repository.snapshots.write:Draft.seal"),
        Step("control.deployments.pushes:deploy"),
        Step("control.deployments.deployment:deploy_models"),
        *_TOLD,
        Step("server.desired.repository:DesiredRepository.want", via="server.gateway"),
        Step("server.desired.merge:merge"),
        Step("server.gateway:Gateway._follow", via="server.gateway"),
        Step("server.fleet.fleet:Fleet.follow"),
        Step("server.fleet.managed_model:ManagedModel.aim"),
        Step("server.fleet.plan:next_change"),
        Step("server.fleet.version_swapper:VersionSwapper.carry_out"),
        Step("server.fleet.loading:VersionLoader.build"),
        Step("server.fleet.prepare:prepare"),
        Step("backends.loading:load"),
        Step("backends.identity:IdentityBackend.load", via="backends.registry"),
        Step("server.fleet.warmup:warm"),
        Step("schedulers.build:build"),
    ),
)

CHAT = Walk(
    "chat request, until its first token is on the wire",
    82,
    (
        Step("server.http1.connection:Http1Connection.data_received"),
        Step(
            "server.rest.protocol:InferProtocol.on_headers_complete",
            via="server.rest.inference_listener",
        ),
        Step(
            "server.rest.middleware:SiteMiddleware.__call__", via="server.rest.inference_listener"
        ),
        Step(
            "server.rest.compression:CompressionMiddleware.__call__",
            via="server.rest.inference_listener",
        ),
        Step("server.openai.endpoints:_route", via="server.openai.endpoints"),
        Step("server.openai.endpoints:OpenAIEndpoints.chat", via="server.openai.endpoints"),
        Step("server.openai.language_inference:received"),
        Step("server.openai.language_inference:find"),
        Step("server.dataplane:DataPlane.find_for"),
        Step("server.dataplane:DataPlane.find_model"),
        Step("server.fleet.fleet:Fleet.get", via="server.gateway"),
        Step("server.openai.bodies.chat:read_chat"),
        Step("server.openai.prompt_tokeniser:PromptTokeniser.of_chat"),
        Step("server.openai.prompt_tokeniser:ChatRenderer.render"),
        Step("backends.llm.chat.render:main", message="backends.llm.chat.render_messages"),
        Step("backends.llm.chat.render:render"),
        Step(
            "schedulers.llm.gateway.engine_tokeniser:EngineTokeniser.encode",
            via="schedulers.llm.gateway.language",
        ),
        Step("server.openai.generation_run:generate"),
        Step("server.openai.language_inference:submit"),
        Step("server.dataplane:DataPlane.submit"),
        Step(
            "schedulers.llm.gateway.language_scheduler:LanguageScheduler.submit",
            via="schedulers.build",
        ),
        Step("schedulers.llm.gateway.engines:Engines.submit"),
        Step("schedulers.llm.gateway.instance:EngineInstance.post"),
        Step("backends.process.duplex:Duplex.send"),
        Step(
            "schedulers.llm.engine.loop:EngineLoop._receive",
            message="schedulers.llm.engine_messages",
        ),
        Step(
            "schedulers.llm.engine.loop:GenerationWork.handle", via="schedulers.llm.engine.process"
        ),
        Step("schedulers.llm.engine.engine:Engine.submit"),
        Step("schedulers.llm.policy.scheduler:SequenceScheduler.schedule"),
        Step("schedulers.llm.policy.step_builder:StepBuilder.fill"),
        Step("backends.llm.runner:Runner.run"),
        Step("backends.llm.rows:pack"),
        Step("backends.llm.model.decoder:Decoder.forward"),
        Step("backends.llm.sampling.sampler:sample"),
        Step("schedulers.llm.engine.loop:GenerationWork._report"),
        Step("schedulers.llm.engine.loop:EngineLoop.send"),
        Step(
            "schedulers.llm.gateway.engines:Engines._receive",
            message="schedulers.llm.engine_messages",
        ),
        Step("schedulers.llm.gateway.llm_reply:LLMReply.send_output"),
        Step("schedulers.reply:Reply.send", via="schedulers.policy.queue"),
        Step("server.openai.generation_run:events_of", via="server.openai.generation_run"),
        Step("server.openai.answers.choice_encoders:ChatChoiceEncoder.pieces"),
        Step("server.openai.generation_run:CompletionEventStream._send"),
    ),
    (
        Carrier("schedulers.llm.generation:GenerateRequest"),
        Carrier("schedulers.request:InferRequest"),
        Carrier("schedulers.llm.engine_messages:Submit", of="GenerateRequest"),
        Carrier("schedulers.llm.policy.step:Step", of="Chunk"),
        Carrier("schedulers.llm.policy.step:Chunk"),
        Carrier("backends.llm.rows:ForwardBatch"),
        Carrier("backends.llm.sampling.sampler:SamplingRow"),
        Carrier("backends.llm.sampling.sampler:ForwardResult"),
        Carrier("schedulers.llm.generation:GenerationOutput"),
        Carrier("schedulers.llm.engine_messages:StepReport", of="GenerationOutput"),
        Carrier("schedulers.request:InferResponse"),
        Carrier("server.openai.answers.choice_encoders:ChatChunkChoice"),
    ),
)

WALKS = (REST_INFER, GRPC_INFER, WEIGHT_CHANGE, PUSH, CHAT)


def main() -> None:
    """Print every walk: its steps, how many files they lie in, and what carries tokens."""
    for walk in WALKS:
        lines = [
            f"{walk.name}: {len(walk.steps)} steps in {len(walk.modules)} files; "
            f"{walk.crossed} files crossed in all when it was traced"
        ]
        for number, step in enumerate(walk.steps, 1):
            lines.append(f"  {number:2}  {step.module.replace('.', '/')}.py  {step.function}")
        if walk.carriers:
            single = sum(not carrier.of for carrier in walk.carriers)
            lines.append(f"{single} types carry its tokens, {len(walk.carriers) - single} several:")
        for carrier in walk.carriers:
            module, _, name = carrier.at.partition(":")
            several = f" (several {carrier.of})" if carrier.of else ""
            lines.append(f"      {module.replace('.', '/')}.py  {name}{several}")
        sys.stdout.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    main()
