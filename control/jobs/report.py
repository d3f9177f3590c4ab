"""What a finished job found: a document that the console, the CLI and a file show alike."""

from typing import Any, Literal

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured quantity before and after; `better` says which direction is an improvement."""

    name: str
    unit: str
    before: float | None
    after: float | None
    better: Literal["lower", "higher", ""] = ""


class ReportTable(msgspec.Struct, frozen=True):
    """Rows of texts and numbers below named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | bool | None, ...], ...]


class PlotSeries(msgspec.Struct, frozen=True):
    """Points (x, y) of one series, at most 2,000; `marks` names single points, by index."""

    name: str
    points: tuple[tuple[float, float], ...]
    marks: dict[str, str] = {}


class Plot(msgspec.Struct, frozen=True):
    """Series over one pair of axes, drawn as lines, as separate points, or as bars."""

    title: str
    x: str
    y: str
    series: tuple[PlotSeries, ...]
    kind: Literal["line", "scatter", "bar"] = "line"


class GraphNode(msgspec.Struct, frozen=True):
    """A node of a network: its operator, and the indices of the nodes whose outputs it reads."""

    operator: str
    name: str
    reads: tuple[int, ...]


class NetworkGraph(msgspec.Struct, frozen=True):
    """A network as nodes in topological order, at most 2,000; `omitted` more are not listed."""

    title: str
    nodes: tuple[GraphNode, ...]
    omitted: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a job found, complete enough to be judged and reproduced without the server.

    verdict: "accepted": the result may be served; "refused": it misses a bound that the spec set,
        and no version is made; "advice": the work made no version by design, as a profile.
    reasons: sentences for the verdict, the most important first: the bound, the value found.
    warnings: sentences on what a reader must know, such as an int8 model that is slower.
    spec: the job's spec with every default filled in.
    versions: packages and programs used, by name. digests: sha256 by the role of each input file.
    config: for a profile, the `config.pbtxt` fields that "apply" would set, as text; else "".
    """

    title: str
    verdict: Literal["accepted", "refused", "advice"]
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    plots: tuple[Plot, ...] = ()
    graphs: tuple[NetworkGraph, ...] = ()
    spec: dict[str, Any] = {}
    versions: dict[str, str] = {}
    digests: dict[str, str] = {}
    cpu: str = ""
    seconds: float = 0.0
    config: str = ""
