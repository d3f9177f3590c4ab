"""Write deploy/grafana/dashboards/modelyard.json from the panels of `docs.dashboard_panels`.

Run by `./dev fix`; tests/deploy fails while the file is out of date, and asks a Prometheus every
query while a server is busy.
"""

import json
from pathlib import Path
from typing import Any

from docs.dashboard_panels import ROWS, Panel

FILE = Path(__file__).resolve().parent.parent / "deploy/grafana/dashboards/modelyard.json"

_WIDE, _HIGH, _COLUMNS = 8, 8, 24
_OF_MODELS = 'instance=~"$instance",model=~"$model"'
_OF_SERVERS = 'instance=~"$instance"'


def dashboard() -> dict[str, Any]:
    """The whole dashboard, as Grafana's file provider reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False,
                "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y}, "panels": [],
            }
        )  # fmt: skip
        y += 1
        for number, panel in enumerate(row):
            x = number * _WIDE % _COLUMNS
            panels.append(_panel(panel, len(panels) + 1, x, y + number * _WIDE // _COLUMNS * _HIGH))
        y += -(-len(row) * _WIDE // _COLUMNS) * _HIGH
    return {
        "uid": "modelyard",
        "title": "Modelyard",
        "tags": ["modelyard"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    now = panel.kind != "timeseries"
    targets = [
        {
            "refId": "ABCDEF"[place], "datasource": source, "legendFormat": legend,
            "expr": _chosen(expression),
            **({"instant": True, "format": "table"} if panel.kind == "table" else {}),
            **({"instant": True} if now else {}),
        }
        for place, (expression, legend) in enumerate(panel.queries)
    ]  # fmt: skip
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {"h": _HIGH, "w": _WIDE, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **({} if now else {"custom": custom})},
            "overrides": [],
        },
        "options": {} if now else {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def _chosen(expression: str) -> str:
    for token, text in (("<m>", _OF_MODELS), ("<s>", _OF_SERVERS), ("<r>", "$__rate_interval")):
        expression = expression.replace(token, text)
    return expression


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    chosen = {
        "instance": 'label_values(up{job="modelyard"}, instance)',
        "model": 'label_values(nv_inference_request_success{instance=~"$instance"}, model)',
    }
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        *(
            {
                "name": name, "type": "query", "label": name.capitalize(), "datasource": source,
                "query": query, "definition": query, "refresh": 2, "sort": 1, "multi": True,
                "includeAll": True, "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in chosen.items()
        ),
    ]  # fmt: skip


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Bring the file up to date."""
    FILE.write_text(text())


if __name__ == "__main__":
    main()
