"""The page at / as files and headers; what it does in a browser is in `tests/web`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from tests.server.harness import Server, running

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.web.site import STATIC, assets

FILES = sorted(path.name for path in STATIC.iterdir())
# Names of formats, not places that anybody asks.
NAMESPACES = ("http://www.w3.org/2000/svg",)


def sources() -> dict[str, str]:
    return {name: (STATIC / name).read_text(encoding="utf-8") for name in FILES}


def test_the_page_and_its_headers(server: Server) -> None:
    answer = server.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_as_it_is_with_its_type(server: Server, name: str) -> None:
    answer = server.get(f"/web/{name}")
    kinds = {
        ".html": "text/html",
        ".css": "text/css",
        ".js": "text/javascript",
        ".svg": "image/svg+xml",
    }
    assert answer.content == (STATIC / name).read_bytes()
    assert answer.headers["content-type"].split(";")[0] == kinds[Path(name).suffix]


def test_files_are_compressed_for_those_who_take_it_and_not_sent_again(server: Server) -> None:
    packed = server.get("/web/main.js", **{"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(assets()["main.js"].compressed) == packed.content
    plain = server.get("/web/main.js", **{"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content
    again = server.get("/web/main.js", **{"If-None-Match": f"W/{packed.headers['etag']}"})
    assert (again.status_code, again.content) == (304, b"")
    assert server.client.head("/").status_code == 200


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2fsite.py", "%2e%2e/site.py", "../site.py", "index.html/x", "."]
)
def test_nothing_else_is_served(server: Server, name: str) -> None:
    answer = server.get(f"/web/{name}")
    assert answer.status_code == 404 or answer.content == assets()["index.html"].plain
    assert b"Serving the page" not in answer.content


def test_the_page_needs_no_key_and_its_calls_do() -> None:
    with running(api_keys=("one",)) as server:
        assert server.get("/").status_code == server.get("/web/main.js").status_code == 200
        for path in ("/metrics", "/v1/models", "/web", "/webhook", "/tokenize"):
            assert server.get(path).status_code == 401, path


def test_disable_web() -> None:
    with running(server_args=ServerArgs(shutdown_timeout=1, disable_web=True)) as server:
        assert server.get("/").status_code == server.get("/web/main.js").status_code == 404


def test_no_file_names_another_host() -> None:
    for name, text in sources().items():
        for namespace in NAMESPACES:
            text = text.replace(namespace, "")
        found = re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}|@import|\burl\(", text)
        assert not found, (name, found)


def test_every_file_that_is_named_is_there_and_used() -> None:
    texts = sources()
    named = set(re.findall(r'(?:href|src)="web/([^"]+)"', texts["index.html"]))
    for name, text in texts.items():
        if name.endswith(".js"):
            named |= set(re.findall(r'from "\./([^"]+)"', text))
    assert named | {"index.html"} == set(FILES)


def test_every_id_that_a_script_looks_up_is_on_the_page() -> None:
    texts = sources()
    ids = re.findall(r'\bid="([^"]+)"', texts["index.html"])
    assert len(ids) == len(set(ids))
    looked_up = {name for text in texts.values() for name in re.findall(r'byId\("([^"]+)"\)', text)}
    assert looked_up <= set(ids)
    controlled = re.findall(r'aria-(?:controls|labelledby|describedby)="([^"]+)"', texts["index.html"])
    assert set(controlled) <= set(ids)


def test_nothing_is_inline_and_no_text_becomes_markup() -> None:
    for name, text in sources().items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), name
    assert not re.search(r"\son\w+=|style=|<script>|<style", sources()["index.html"])


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, str]]:
    text = sources()["base.css"]
    blocks = re.findall(r"\{([^{}]*--paper: [^{}]*)\}", text)
    return [dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]


def test_contrasts_in_both_themes() -> None:
    light, dark, preferred_dark = themes()
    assert dark == preferred_dark
    for theme in (light, dark):
        for ground in ("--paper", "--leaf", "--well"):
            for text in ("--ink", "--soft", "--rubric"):
                assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
            assert contrast(theme["--edge"], theme[ground]) >= 3, ground
        assert contrast(theme["--on-rubric"], theme["--rubric"]) >= 4.5
        for hue in range(5):
            assert contrast(theme["--ink"], theme[f"--hue-{hue}"]) >= 4.5, hue
