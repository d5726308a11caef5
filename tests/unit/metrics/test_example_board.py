"""The board in `examples/monitoring` asks for what a server has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from octavo.metrics import EngineMetrics
from octavo.metrics.http_metrics import HttpCall, HttpMetrics
from octavo.metrics.together import render_together

HERE = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
_NAME = re.compile(r"\b(?:octavo:|http_|process_)[a-z_0-9]+")


def served() -> set[str]:
    http = HttpMetrics("octavo")
    http.begin()
    http.end(HttpCall("/v1/models", "GET", 200, 0.1, 0, 0))
    text = render_together([http.registry, EngineMetrics("m").registry]).decode()
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def test_every_series_of_the_board_is_served() -> None:
    board = json.loads((HERE / "grafana" / "octavo.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {name for expression in asked for name in _NAME.findall(expression)}
    assert len(asked) > 12
    assert "octavo:num_requests_running" in names
    assert names <= served()


def test_what_compose_mounts_is_there_and_listens_on_this_machine_only() -> None:
    services = yaml.safe_load((HERE / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert all((HERE / volume.split(":")[0]).exists() for volume in service["volumes"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (source,) = yaml.safe_load((HERE / "grafana/provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    board = json.loads((HERE / "grafana" / "octavo.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
