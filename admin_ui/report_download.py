"""A job's report as one HTML file that needs nothing else: /jobs/{job}/report.html."""

import re

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from admin_ui.headers import PRIVATE
from admin_ui.pages.jobs import title_of
from admin_ui.reports.seen import seen_report
from admin_ui.request_router import RequestRouter
from admin_ui.templates import STATIC, render


def report_route(router: RequestRouter) -> BaseRoute:
    """Looked up as whoever asks."""

    async def download(request: Request) -> Response:
        context = await router.page_context(request)
        job = await context.get("/jobs/{job}", job=context.path["job"])
        seen = seen_report(await context.get("/jobs/{job}/report", job=job["id"]))
        # ours, and a style sheet has no entities
        css = Markup((STATIC / "console.css").read_text())
        text = render(
            "job_file.html", {"job": job, "seen": seen, "title": title_of(job), "css": css}
        )
        name = re.sub(r"[^a-z0-9]+", "-", title_of(job).lower()).strip("-")
        headers = {"Content-Disposition": f'attachment; filename="{name}.html"'}
        return Response(text, 200, {**PRIVATE, **headers}, "text/html")

    return Route("/jobs/{job}/report.html", router.guarded(download), methods=["GET"])
