"""What gateways are told: one frozen value, handed over whole and kept on their disks.

Pure: rows become a `DesiredState` in `control.desired_rows`; gateways never see a row. Its bytes
are `control.gateways.wire`'s: a field this build does not know is ignored, one it misses has its
default, so that old and new processes understand each other across an upgrade.
"""

from collections.abc import Mapping

from msgspec import Struct, field

FORMAT = 1


class Pin(Struct, frozen=True):
    """A version something refers to: kept loaded whatever the version policy says.

    `snapshot` is the digest of the snapshot that has it, "" when the model is not from git.
    `by` names who refers, e.g. "alias champion".
    """

    version: int
    snapshot: str
    by: str


class DesiredModel(Struct, frozen=True):
    """One model. `snapshot`: digest of its deployed snapshot, "" for a model that lies in a model
    repository folder and is only referred to. `commit` and `repository` say where it came from.
    `network`: whether its repository lets models use the network."""

    name: str
    snapshot: str = ""
    repository: str = ""
    commit: str = ""
    pins: tuple[Pin, ...] = ()
    network: bool = False


class TokenGrant(Struct, frozen=True):
    """A token as gateways know it: by the SHA-256 of its text, in hex.

    `expires` in seconds since the epoch, 0 for never. `rate_per_s` 0: not limited.
    """

    digest: str
    token_id: str
    principal: str
    role: str
    scopes: tuple[str, ...]
    expires: float = 0.0
    rate_per_s: float = 0.0
    burst: int = 0


class DesiredArm(Struct, frozen=True):
    """One of the versions behind a public name. `version` 0: the one `alias` stands for.

    `weight`: of 10,000 buckets.
    """

    name: str
    model: str
    version: int = 0
    alias: str = ""
    weight: int = 0


class Match(Struct, frozen=True):
    """Requests whose `header` (in lower case) is `value`, or begins with it where `prefix` says so,
    go to `arm` whatever the weights are."""

    header: str
    value: str
    arm: str
    prefix: bool = False


class Mirror(Struct, frozen=True):
    """`arm` gets a copy of so many of 10,000 requests; nobody waits for its answers."""

    arm: str
    weight: int


class DesiredRoute(Struct, frozen=True):
    """A public name and where its requests go. The first arm is the stable one.

    `unit`: what stays with its arm, "" for nothing; see `control.routes.spec.check_unit`. `only`:
    the arm that gets everything while the kill switch is on, "" while it is not. `rollout`: id
    of the rollout that owns the weights.
    """

    name: str
    arms: tuple[DesiredArm, ...]
    salt: str = ""
    unit: str = ""
    matches: tuple[Match, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    only: str = ""
    rollout: str = ""


class DesiredExperiment(Struct, frozen=True):
    """One that is running: who of the route's units has seen which of `arms` is to be told.

    It holds `buckets` of its namespace, from `first_bucket` on; without a namespace it has all
    units.
    """

    id: str
    route: str
    arms: tuple[str, ...]
    namespace: str = ""
    first_bucket: int = 0
    buckets: int = 0


class DriftRule(Struct, frozen=True):
    """A model whose inputs and outputs are counted: `percent` of its requests, no more than `per_s`
    a second of each version. `labels`: the output with the labels or the scores of classes, "" to
    find it out, "-" for none. `names`: whether strings are kept, rather than hashes of them.
    `profile`: whether the profile that a version came with is wanted."""

    model: str
    percent: float
    per_s: float
    labels: str = ""
    names: bool = False
    profile: bool = False


class DesiredState(Struct, frozen=True):
    """Everything at one revision; a gateway ignores one older than what it has.

    `store`: id of the store whose snapshots are meant. `aliases`: model → alias → version.
    `stamp_key`: with which answers of experiments are signed; empty while there are none. `format`:
    grows when older builds cannot read it any more.
    """

    revision: int = 0
    store: str = ""
    models: tuple[DesiredModel, ...] = ()
    aliases: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    grants: tuple[TokenGrant, ...] = ()
    routes: tuple[DesiredRoute, ...] = ()
    experiments: tuple[DesiredExperiment, ...] = ()
    stamp_key: bytes = b""
    format: int = FORMAT
    drift: tuple[DriftRule, ...] = ()


NOTHING = DesiredState()
