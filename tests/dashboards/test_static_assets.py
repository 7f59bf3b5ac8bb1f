"""Static files: hashed names, long caching, compression, and every page uses them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.templatetags.static import static
from django.test import AsyncClient, Client
from pytest_django import Settings

from dashboards import static_assets
from dashboards.static_assets import Asset, StaticAssets
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader
from tests.meta.house import ROOT

_PAGE_SCRIPT = "dashboards/js/page.js"
_HASHED_URL = re.compile(r"/static/[0-9a-f]{16}/[\w./-]+")
_GZIP = {"Accept-Encoding": "gzip, deflate, br"}


@pytest.fixture
def assets_root(tmp_path: Path, settings: Settings) -> Path:
    """Serve static files from this folder instead of the installed packages."""
    settings.STATICFILES_DIRS = [tmp_path]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.js").write_text('import "./part.js";\n')
    (tmp_path / "app" / "part.js").write_text("export const part = 1;\n" * 40)
    (tmp_path / "app" / "part.js.map").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "logo.png").write_bytes(bytes(range(256)))
    return tmp_path


def test_hash_covers_the_folder(assets_root: Path) -> None:
    """A module that changes renames the modules that import it, and no file of another folder."""
    before = StaticAssets()
    main, logo = before.hashed_name("app/main.js"), before.hashed_name("other/logo.png")
    (assets_root / "app" / "part.js").write_text("export const part = 2;\n")
    after = StaticAssets()
    assert after.hashed_name("app/main.js") != main
    assert after.hashed_name("app/main.js").split("/")[0] == after.hashed_name("app/part.js").split("/")[0]
    assert after.hashed_name("other/logo.png") == logo
    assert before.hashed_name("app/main.js") == main, "a running process serves what it hashed"


def test_unknown_names_are_errors(assets_root: Path) -> None:
    """A template that names a file that does not exist fails, instead of a page without its script."""
    assets = StaticAssets()
    for name in ("app/missing.js", "missing/main.js", "main.js", "", "app/part.js.map"):
        with pytest.raises(ValueError, match="not found"):
            assets.hashed_name(name)


def test_cache_control_by_name(assets_root: Path) -> None:
    """Only the hash of this content allows caches to keep a file."""
    assets = StaticAssets()
    hashed_name = assets.hashed_name("app/main.js")
    other_release = f"{'0' * 16}/app/main.js"
    policies = {path: assets.find(path) for path in (hashed_name, "app/main.js", other_release)}
    assert [policy[1] for policy in policies.values() if policy] == [
        "public, max-age=31536000, immutable",
        "public, no-cache",
        "no-store",
    ]
    for path in ("app/missing.js", f"{hashed_name}x", f"{'0' * 16}/app", "", "../manage.py"):
        assert assets.find(path) is None


def test_debug_reads_files_again(assets_root: Path, settings: Settings) -> None:
    """While developing, a reload shows a change."""
    settings.DEBUG = True
    assets = StaticAssets()
    before = assets.hashed_name("app/main.js")
    (assets_root / "app" / "main.js").write_text("changed")
    assert assets.hashed_name("app/main.js") != before


def test_asset_compresses_text_only() -> None:
    """What does not get smaller is sent as it is."""
    text = Asset("a.js", b"export const a = 1;\n" * 100)
    body, is_gzipped = text.encode(accepts_gzip=True)
    assert is_gzipped
    assert gzip.decompress(body) == b"export const a = 1;\n" * 100
    assert text.encode(accepts_gzip=False) == (b"export const a = 1;\n" * 100, False)
    assert Asset("a.png", bytes(range(256))).encode(accepts_gzip=True) == (bytes(range(256)), False)
    assert Asset("empty.css", b"").encode(accepts_gzip=True) == (b"", False)


def test_hashed_file_is_served_compressed_for_a_year(client: Client) -> None:
    """With its type, and with what caches need."""
    response = client.get(static(_PAGE_SCRIPT), headers=_GZIP)
    assert response.status_code == 200
    assert response["Cache-Control"] == "public, max-age=31536000, immutable"
    assert response["Content-Type"] == "text/javascript; charset=utf-8"
    assert (response["Content-Encoding"], response["Vary"]) == ("gzip", "Accept-Encoding")
    assert response["X-Content-Type-Options"] == "nosniff"
    assert int(response["Content-Length"]) == len(response.content)
    plain = client.get(static(_PAGE_SCRIPT))
    assert gzip.decompress(response.content) == plain.content
    assert "Content-Encoding" not in plain.headers
    assert plain["Vary"] == "Accept-Encoding"


def test_unchanged_file_is_not_sent_again(client: Client) -> None:
    """A reload that asks nevertheless gets 304."""
    etag = client.get(f"/static/{_PAGE_SCRIPT}", headers=_GZIP)["ETag"]
    response = client.get(f"/static/{_PAGE_SCRIPT}", headers={**_GZIP, "If-None-Match": etag})
    assert (response.status_code, response.content, response["ETag"]) == (304, b"", etag)


@pytest.mark.parametrize("path", ["dashboards/js/none.js", "", "dashboards/", "dashboards/../settings.py"])
def test_other_paths_are_not_found(client: Client, path: str) -> None:
    """Nothing besides static files can be read."""
    assert client.get(f"/static/{path}").status_code == 404


def test_files_are_read_only(client: Client) -> None:
    """Another method is for the pages behind."""
    assert client.post(static(_PAGE_SCRIPT)).status_code == 404


async def test_static_files_under_asgi(async_client: AsyncClient) -> None:
    """As the console serves them: the bundle out of the wheel, compressed."""
    response = await async_client.get(static("plotly/plotly.min.js"), headers=_GZIP)
    assert response.status_code == 200
    assert 1_000_000 < len(response.content) < 2_000_000  # type: ignore[attr-defined] # not streamed
    assert response["Cache-Control"] == "public, max-age=31536000, immutable"


def test_scripts_import_by_relative_names() -> None:
    """The hash of the folder holds for imports, because they stay in the folder."""
    folder = static_assets.static_assets().folder("dashboards")
    assert folder is not None
    for name, asset in folder.assets.items():
        if not name.endswith(".js"):
            continue
        source = asset.encode(accepts_gzip=False)[0].decode()
        for module in re.findall(r'^(?:import|export)\b[^;]*?from "([^"]+)"', source, re.MULTILINE):
            assert module.startswith("./"), f"{name} imports {module}"
            assert f"dashboards/js/{module.removeprefix('./')}" in folder.assets


#: Pages, and the scripts and styles of each besides those of every page.
_FILES_BY_PAGE = {
    "/": {"js/fleet.js", "css/fleet.css"},
    "/agents/": {
        "js/refresh.js",
        "js/agent-filters.js",
        "js/agent-columns.js",
        "js/agent-selection.js",
        "css/agents.css",
    },
    "/history/": {"js/history.js", "css/fleet.css", "css/history.css"},
    "/history/compare/": {"js/page.js", "css/history.css"},
    "/incidents/": {"js/refresh.js", "js/silence.js", "css/alerts.css", "css/silences.css"},
    "/silences/": {"js/refresh.js", "js/silence.js", "css/alerts.css", "css/silences.css"},
    "/networking/": {"css/changes.css", "css/plots.css", "css/networking.css", "js/page.js"},
    "/changes/": {"css/changes.css", "js/refresh.js"},
    "/audit/": {"css/changes.css", "js/page.js"},
    "/tokens/": {"js/page.js"},
    "/accounts/login/": {"js/page.js", "js/passkeys.js"},
    "/accounts/password/change/": {"js/page.js"},
}
_FILES_OF_EVERY_PAGE = {
    "favicon.svg",
    "css/tokens.css",
    "css/frame.css",
    "css/parts.css",
    "css/dialogs.css",
    "css/forecast.css",
    "css/palette.css",
    "css/print.css",
    "js/theme.js",
}
#: Of every page with a sign-in.
_SCRIPTS_OF_USERS = (
    *("incidents", "dialogs", "fields", "local-times", "table-labels", "keys", "cluster-menu", "palette"),
)


@pytest.mark.django_db
@pytest.mark.parametrize("path", _FILES_BY_PAGE)
def test_page_loads_what_it_uses(
    client: Client, fake_reader: FakeReader, person: MakeUser, path: str
) -> None:
    """Hashed, from the console itself, and nothing else: plotly is loaded by the script of a chart in view."""
    expected = _FILES_OF_EVERY_PAGE | _FILES_BY_PAGE[path]
    if "login" not in path:
        client.force_login(person("admin"))
        expected |= {f"js/{name}.js" for name in _SCRIPTS_OF_USERS}
    page = client.get(path).content.decode()
    urls = set(re.findall(r'<(?:script|link)\b[^>]*?(?:src|href)="([^"]+)"', page))
    assert all(_HASHED_URL.fullmatch(url) for url in urls), urls
    files = {url.split("/", 4)[4] for url in urls if "/dashboards/" in url}
    assert files == expected
    for url in urls:
        response = client.get(url, headers=_GZIP)
        assert (response.status_code, "immutable" in response["Cache-Control"]) == (200, True), url


_TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda path: path.name)
def test_templates_name_no_static_url(template: Path) -> None:
    """Only `{% static %}` writes names with a hash. No page but the map's loads plotly before a chart is in view."""
    source = template.read_text()
    assert "/static/" not in source
    assert not re.search(r"<script[^>]*plotly", source) or template.name == "map.html"
