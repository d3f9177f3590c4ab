"""A chart's points as CSV: /chart.csv?at=PAGE&chart=ID, for whoever may look at the page."""

import csv
import io
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from admin_ui.headers import PRIVATE
from admin_ui.request_router import RequestRouter
from admin_ui.services import ControlApiError
from admin_ui.tables import DownloadTable
from admin_ui.traffic.charts import TrafficChart
from admin_ui.traffic.load import TrafficCharts


def chart_route(router: RequestRouter) -> BaseRoute:
    """The page is looked up anew, as whoever asks."""

    async def download(request: Request) -> Response:
        at, name = (request.query_params.get(key, "") for key in ("at", "chart"))
        found = router.find(at)
        if found is None:
            raise ControlApiError(404, "not_found", f"no page is at {at[:200]}", "at")
        screen, facts = found
        shown = await screen.load(await router.page_context(request, **facts))
        table = shown.context.get("tables", {}).get(name)
        if isinstance(table, DownloadTable):
            headers = {"Content-Disposition": f'attachment; filename="{_file_name(at, name)}"'}
            return Response(csv_of_table(table), 200, {**PRIVATE, **headers}, "text/csv")
        traffic = shown.context.get("traffic")
        chart = traffic.chart(name) if isinstance(traffic, TrafficCharts) else None
        if chart is None:
            raise ControlApiError(404, "not_found", f"{at[:200]} has no chart {name[:80]}", "chart")
        headers = {"Content-Disposition": f'attachment; filename="{_file_name(at, chart.id)}"'}
        return Response(csv_of(chart), 200, {**PRIVATE, **headers}, "text/csv")

    return Route("/chart.csv", router.guarded(download), methods=["GET"])


def csv_of_table(table: DownloadTable) -> str:
    """Empty where nothing is known. Pure."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow(["" if one is None else _harmless(str(one)) for one in row])
    return text.getvalue()


def csv_of(chart: TrafficChart) -> str:
    """A row for each point; empty where nothing is known. Pure."""
    text = io.StringIO()
    writer = csv.writer(text)
    unit = f" ({chart.unit})" if chart.unit else ""
    writer.writerow(["from", *(_harmless(line + unit) for line in chart.lines)])
    for at, values in chart.whole:
        writer.writerow([at, *("" if value is None else repr(value) for value in values)])
    return text.getvalue()


def _harmless(text: str) -> str:
    """No formula of a spreadsheet."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _file_name(at: str, name: str) -> str:
    page = re.sub(r"[^A-Za-z0-9]+", "-", at.partition("?")[0]).strip("-") or "overview"
    return f"modelyard-{page[:80]}-{name.removeprefix('traffic-')}.csv"
