"""Distil a version: a student of the recipe learns its answers, and becomes a version."""

from typing import Any

import torch
from torch import Tensor, nn

from control.jobs.report import Figure, Report
from control.jobs.specs.distil import DistilSpec
from jobs.tools.distil.soft_loss import are_probabilities, as_logits, soft_loss
from jobs.tools.training.judgement import Judge
from jobs.tools.training.loop import Loss, Schedule, Trainer
from jobs.tools.training.recipe import Answer, Batch, Recipe
from jobs.tools.training.version import OnnxAnswer, SourceVersion, tensors_of
from jobs.tools.work import Work, refuse

MEASURED = (0.05, 0.95)
"""Share of the progress after the teacher is measured, and before the student is."""


def run(work: Work) -> Report:
    """Raises WorkRefused for a recipe or a network that cannot be used."""
    spec = work.task.spec
    assert isinstance(spec, DistilSpec)
    torch.manual_seed(work.task.seed)
    torch.set_num_threads(work.task.threads)
    work.progress(0.0, "loading the recipe and measuring the teacher")
    recipe = Recipe(work.task, spec)
    version = SourceVersion(work.task, spec)
    judge = Judge(work, spec, recipe, version)
    network = recipe.network() if spec.teacher == "recipe" else None
    teacher = _teacher(work, version, network)
    before = judge.source(network)
    student = recipe.student()
    untrained = _accuracy(recipe, student)
    probable = _gives_probabilities(recipe, teacher)
    work.point("held-out accuracy", 0, untrained)
    trainer = Trainer(work, recipe, _loss(spec, recipe, teacher))
    trainer.train(student, Schedule(spec.epochs, spec.learning_rate, work.task.seed, 0, MEASURED))
    work.progress(MEASURED[1], "exporting and measuring the student")
    result = WithSoftmax(student) if probable else student
    after = judge.result(result)
    same = _same(recipe, teacher, result.eval())
    more = [
        Figure("student's held-out accuracy before it learnt", "%", None, 100 * untrained),
        Figure("held-out rows answered as the teacher does", "%", None, same, "higher"),
    ]
    return judge.report(f"Distil {spec.model}", before, after, more)


class WithSoftmax(nn.Module):
    """A student whose first output becomes probabilities, as its teacher's is."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student

    def forward(self, *inputs: Tensor) -> Any:
        """As the student's, with the softmax over the last axis of the first output."""
        found = self.student(*inputs)
        if isinstance(found, Tensor):
            return found.softmax(-1)
        return (found[0].softmax(-1), *found[1:])


def _gives_probabilities(recipe: Recipe, teacher: Answer) -> bool:
    """Whether the teacher ends in a softmax: the student learns logits, and clients get what they
    got."""
    with torch.no_grad():
        return are_probabilities(_first(recipe.forward(teacher, recipe.example())))


def _teacher(work: Work, version: SourceVersion, network: nn.Module | None) -> Answer:
    if network is not None:
        return network.eval()
    if version.onnx is None:
        refuse(
            f"{version.name} has no ONNX file to ask; set teacher to 'recipe', and the recipe's "
            "network() is asked instead"
        )
    return OnnxAnswer(version.onnx, version.name, work.task.threads)


def _accuracy(recipe: Recipe, student: nn.Module) -> float:
    return recipe.accuracy(student.eval())


def _loss(spec: DistilSpec, recipe: Recipe, teacher: Answer) -> Loss:
    def loss(student: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        outputs = recipe.forward(student, inputs)
        soft = soft_loss(
            _first(outputs), _asked(recipe, teacher, inputs, outputs), spec.temperature
        )
        if not spec.hard:
            return soft
        if targets is None:
            refuse(
                f"{recipe.path.name}: hard is {spec.hard:g}, but batches('train') gave inputs "
                "without targets; set hard to 0, or give (inputs, targets)"
            )
        return (1 - spec.hard) * soft + spec.hard * recipe.loss(outputs, targets)

    return loss


def _asked(recipe: Recipe, teacher: Answer, inputs: tuple[Tensor, ...], outputs: Any) -> Tensor:
    """The teacher's logits. Refuses a student whose outputs have another shape."""
    with torch.no_grad():
        wanted = as_logits(_first(recipe.forward(teacher, inputs)))
    found = _first(outputs)
    if found.shape != wanted.shape:
        refuse(
            f"{recipe.path.name}: the student gives {list(found.shape)} where the teacher gives "
            f"{list(wanted.shape)}; both must give the same logits"
        )
    if wanted.dim() < 2 or wanted.shape[-1] < 2:
        refuse(
            f"{recipe.path.name}: teacher and student give {list(wanted.shape)}; a student learns "
            "logits [rows, classes] of two classes or more: of one, no answer differs from another"
        )
    return wanted


def _same(recipe: Recipe, teacher: Answer, student: nn.Module) -> float:
    """Percentage of held-out rows with the same largest logit."""
    same = rows = 0
    with torch.no_grad():
        for inputs, _ in recipe.batches("held_out", 0):
            wanted = _first(recipe.forward(teacher, inputs)).argmax(-1)
            same += int((_first(recipe.forward(student, inputs)).argmax(-1) == wanted).sum())
            rows += wanted.numel()
    return 100 * same / rows


def _first(outputs: Any) -> Tensor:
    return tensors_of(outputs, "a network")[0]
