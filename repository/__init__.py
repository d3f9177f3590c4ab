"""What exists: model config, versions, snapshots and watching. Loads nothing, calls nobody."""

from repository.lazy_packages import install

install()
