"""How far a student's logits are from its teacher's: the divergence of both, softened."""

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

EXACT = 1e-3
LEAST = 1e-7
"""Probabilities below it count as this one, whose logarithm is finite."""


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Kullback-Leibler divergence of the rows' softmax at a temperature, times its square.

    Logits [..., classes]; the mean over all rows. The square keeps the gradient's size whatever
    the temperature (Hinton, Vinyals and Dean 2015).
    """
    classes = student.shape[-1]
    found = log_softmax(student.reshape(-1, classes) / temperature, dim=1)
    wanted = log_softmax(teacher.reshape(-1, classes) / temperature, dim=1)
    divergence = kl_div(found, wanted, reduction="batchmean", log_target=True)
    return divergence * temperature**2


def as_logits(outputs: Tensor) -> Tensor:
    """The outputs, or their logarithms where they are probabilities."""
    return outputs.clamp_min(LEAST).log() if are_probabilities(outputs) else outputs


def are_probabilities(outputs: Tensor) -> bool:
    """Whether no number is negative and each row sums to one."""
    probable = outputs.shape[-1] > 1 and bool((outputs >= 0).all())
    return probable and bool(((outputs.sum(-1) - 1).abs() < EXACT).all())
