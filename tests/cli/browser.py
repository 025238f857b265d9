"""Opens a page in headless Chromium; returns its document and console, and takes a screenshot.

A window of Chromium cannot be as narrow as a phone, so the page is in a frame of the wanted width.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TIMEOUT_S = 120
DESKTOP, PHONE = 1280, 390

_FRAME = """<!doctype html><body style="margin:0"><iframe id="frame" src="{page}"
style="border:0;display:block;width:{width}px;height:{height}px"></iframe><pre id="found"></pre><script>
document.getElementById("frame").addEventListener("load", () => {{
  const page = document.getElementById("frame").contentDocument;
  const box = (element) => element.getBoundingClientRect();
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const overlaps = [], outside = [];
  for (const svg of page.querySelectorAll("svg.chart")) {{
    const texts = [...svg.querySelectorAll("text")];
    texts.forEach((one, at) => {{
      for (const other of texts.slice(at + 1))
        if (meets(box(one), box(other))) overlaps.push([one.textContent, other.textContent]);
      const card = box(svg.closest(".card"));
      if (box(one).left < card.left || box(one).right > card.right) outside.push(one.textContent);
    }});
  }}
  // A cell that scrolls is not seen either: nothing says that there is more.
  const clipped = [...page.querySelectorAll(".card td")].filter((cell) => {{
    const card = box(cell.closest(".card"));
    return cell.textContent && (box(cell).right > card.right || cell.scrollWidth > cell.clientWidth + 1);
  }}).map((cell) => cell.textContent);
  document.getElementById("found").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    height: page.documentElement.scrollHeight,
    plots: [...page.querySelectorAll("[data-plot]")].map((card) => card.dataset.plot),
    charts: page.querySelectorAll("svg.chart").length,
    maps: page.querySelectorAll("svg.map").length,
    bars: page.querySelectorAll("svg.map rect.bar").length,
    damage: page.querySelectorAll("svg.map rect.damage").length,
    scripts: page.querySelectorAll("script").length,
    text: page.body.innerText,
    paper: getComputedStyle(page.body).backgroundColor,
    theme: page.getElementById("theme").textContent,
    overlaps, outside, clipped,
  }});
}});
</script>"""


@dataclass(frozen=True)
class Seen:
    """A page as rendered by the browser."""

    found: dict[str, Any]
    console: list[str]

    def __getattr__(self, name: str) -> Any:
        return self.found[name]


def look(page: Path, *, width: int, picture: Path | None = None, is_dark: bool = False) -> Seen:
    """Open a page in a frame of this width; with `picture`, also save a screenshot of the whole page."""
    done = _chromium(page, "--dump-dom", width=width, height=1000, is_dark=is_dark)
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr
    found = json.loads(html.unescape(match[1]))
    if picture is not None:
        height = min(found["height"], 12_000)
        _chromium(page, f"--screenshot={picture}", width=width, height=height, is_dark=is_dark)
    return Seen(found, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def _chromium(page: Path, *arguments: str, width: int, height: int, is_dark: bool) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    frame = page.with_name(f"{page.stem}-frame.html")
    frame.write_text(_FRAME.format(page=page.name, width=width, height=height))
    return subprocess.run(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={max(width, 500)},{height}",
            "--virtual-time-budget=5000",
            *arguments,
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
