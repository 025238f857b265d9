"""Take the README's pictures, light and dark: the top of the page that `seeklog report` writes about the demo.

Run by `make pictures`; needs chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = Path(__file__).resolve().parent
# The page down to its first row of plots.
WIDTH, HEIGHT = 1280, 1152
SEEKLOG = (sys.executable, "-m", "seeklog.cli")


def main() -> int:
    """Return 0, or print a line and return 1 if there is no browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("chromium is not installed; run: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "payments.html"
        for arguments in (
            ("demo", "--no-spark", "demo-data"),
            ("report", "demo-data/store", "payments", "--utc", "-o", str(page)),
        ):
            subprocess.run([*SEEKLOG, *arguments], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        for number, name in enumerate(("dark", "light")):
            take(browser, page, PICTURES / f"report-{name}.png", scheme=number)
    return 0


def take(browser: str, page: Path, picture: Path, *, scheme: int) -> None:
    """Take a picture of the top of a page. `scheme` is Chromium's number: 0 is dark, 1 is light."""
    subprocess.run(
        [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={page.parent / 'profile'}",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    print(f"taken: {picture.name}")


if __name__ == "__main__":
    sys.exit(main())
