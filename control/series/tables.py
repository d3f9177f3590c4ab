"""The rows of time series: what gateways sent lately, and what was made of it for longer."""

from sqlalchemy import LargeBinary, Text
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import NOT_BACKED_UP, Table


class SeriesWindowRow(Table):
    """A window of one gateway, as it sent it. `at`: seconds since the epoch. `payload`: the rows,
    as `control.series.packing` packs them."""

    __tablename__ = "series_window"
    __table_args__ = NOT_BACKED_UP
    server_id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[int] = mapped_column(primary_key=True)
    boot: Mapped[str] = mapped_column(primary_key=True)
    payload: Mapped[bytes] = mapped_column(LargeBinary())


class SeriesChunkRow(Table):
    """The points of one subject on one server, `level` seconds each, from `start` on for as long as
    a chunk of its level spans. A chunk whose subject is "" says that those of its stretch are
    complete."""

    __tablename__ = "series_chunk"
    __table_args__ = NOT_BACKED_UP
    level: Mapped[int] = mapped_column(primary_key=True)
    start: Mapped[int] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(Text(), primary_key=True)
    server_id: Mapped[str] = mapped_column(primary_key=True)
    payload: Mapped[bytes] = mapped_column(LargeBinary())
