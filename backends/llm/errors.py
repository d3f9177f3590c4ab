"""What can be wrong with a checkpoint.

BackendError (backends/errors.py)
└── LoadFailed (backends/errors.py)
    ├── BadCheckpoint      a file is missing or contradicts itself: names the file and the field
    ├── UnknownFamily      an architecture this decoder does not know; names those it knows
    ├── NoRoom             the memory budget is too small; says how much would do
    └── NoDevice           the GPU that was asked for is not there; says what torch sees
GrammarInvalid             a request's grammar cannot be followed; names the fault
DeviceLost                 (internal) the device has failed; only a new process can use it again
NoKernels                  (internal) the compiled kernels cannot be had; torch serves instead
"""

from backends.errors import LoadFailed


class BadCheckpoint(LoadFailed):
    """A checkpoint that cannot be loaded as it stands."""


class UnknownFamily(LoadFailed):
    """A checkpoint of an architecture that is not among the supported ones."""


class NoRoom(LoadFailed):
    """A model does not fit the memory it was granted."""


class NoDevice(LoadFailed):
    """A GPU that this process cannot use."""


class DeviceLost(Exception):
    """The device does nothing for this process any more; the message has its reason."""


class NoKernels(Exception):
    """The compiled kernels cannot be had on this machine; the message says why."""


class GrammarInvalid(ValueError):
    """A grammar that cannot be compiled; the message names the fault and what would work."""
