"""What exists: model config, versions, snapshots and watching. Loads nothing, calls nobody."""

from repository.shells import install

install()
