"""The network: a character and a state in, the next character and the next state out."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from examples.gru_text.text import CHARACTERS, TEXT, numbers_of

STATE, WINDOW, ROWS, STEPS, SEED = 96, 40, 12, 180, 5


class Writer(nn.Module):
    """CHAR INT32 [n, 1], STATE_IN FP32 [n, 96] → NEXT INT32 [n, 1], the likeliest, and
    STATE_OUT FP32 [n, 96]."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), 24)
        self.gru = nn.GRU(24, STATE, batch_first=True)
        self.cell = nn.GRUCell(24, STATE)  # one step of it, with the same weights
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(self.gru, f"{name}_l0"))
        self.scores = nn.Linear(STATE, len(CHARACTERS))

    def forward(self, char: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(self.characters(char[:, 0]), state)
        return self.scores(state).argmax(1, keepdim=True).to(torch.int32), state

    def learned_from(self, window: Tensor) -> Tensor:
        """The loss of reading windows [rows, WINDOW + 1] from their beginnings."""
        states, _ = self.gru(self.characters(window[:, :-1]))
        return cross_entropy(self.scores(states).flatten(0, 1), window[:, 1:].flatten())


def trained() -> Writer:
    """Trained on one core (seconds), the same on every run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return _train(Writer()).eval()
    finally:
        torch.set_num_threads(threads)


def _train(writer: Writer) -> Writer:
    text = torch.tensor(numbers_of(TEXT + TEXT[: WINDOW + 1]))
    optimizer = torch.optim.Adam(writer.parameters(), lr=8e-3)
    for _ in range(STEPS):
        begins = torch.randint(len(TEXT), (ROWS,))
        windows = torch.stack([text[begin : begin + WINDOW + 1] for begin in begins.tolist()])
        optimizer.zero_grad()
        writer.learned_from(windows).backward()
        optimizer.step()
    return writer
