"""What the rules of `repository.validate` write into."""

from repository.findings import Finding
from repository.model import ModelConfig
from repository.positions import Positions


class Report:
    """The findings so far, and where the config's fields stand in its text."""

    def __init__(self, positions: Positions, complete: bool) -> None:
        self.positions = positions
        self.complete = complete
        self.findings: list[Finding] = []

    def add(self, path: str, code: str, message: str) -> None:
        """Complain about the field at `path`, or about what encloses it when it is absent."""
        line, column = self.positions.at(path)
        self.findings.append(Finding(self.positions.where, line, column, code, message))

    def batch_size_known(self, config: ModelConfig) -> bool:
        """Whether max_batch_size is what it says; 0 may yet be filled in from the artefact."""
        given = self.complete or self.positions.given("max_batch_size")
        return given or bool(config.max_batch_size)
