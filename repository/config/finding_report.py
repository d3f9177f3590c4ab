"""What the rules of `repository.config.validate` write into."""

from pathlib import Path

from repository.config.positions import Positions
from repository.findings import MOST_FINDINGS, Finding
from repository.model import ModelConfig


class FindingReport:
    """The findings so far, and where the config's fields stand in its text."""

    def __init__(self, positions: Positions, complete: bool) -> None:
        self.positions = positions
        self.complete = complete
        self.findings: list[Finding] = []

    def add(self, path: str, code: str, message: str) -> None:
        """Complain about the field at `path`, or about what encloses it when it is absent.

        Of very many complaints the first are kept, and one that says so.
        """
        if len(self.findings) > MOST_FINDINGS:
            return
        line, column = self.positions.at(path)
        if len(self.findings) == MOST_FINDINGS:
            self.findings.append(more_at(self.positions.where, line, column))
            return
        self.findings.append(Finding(self.positions.where, line, column, code, message))

    def batch_size_known(self, config: ModelConfig) -> bool:
        """Whether max_batch_size is what it says; 0 may yet be filled in from the artefact."""
        given = self.complete or self.positions.given("max_batch_size")
        return given or bool(config.max_batch_size)


def more_at(where: Path, line: int, column: int) -> Finding:
    """The last finding of a config that has more than MOST_FINDINGS."""
    text = f"more mistakes here; the first {MOST_FINDINGS} findings are shown, fix those"
    return Finding(where, line, column, "E107", text)
