"""Make the picture of the inspector for the README, from the sessions of the demo.

    python tools/screenshot.py        # writes docs/images/inspector.png

Needs a Chromium on the machine and Playwright's Python package.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

from muntin.inspector.server import address_of, listen, make_server, new_token
from muntin.timeline.store import open_store

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "inspector.png"
SESSION = "airline-small"
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Run the demo, serve its store, and take the picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("there is no Chromium here: sudo apt-get install -y chromium")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "muntin", "demo", "--output", folder, "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        url = f"sqlite:///{Path(folder) / 'muntin-demo.db'}"
        with open_store(url, create=False) as store, listen(port=0) as listening:
            token = new_token()
            server = make_server(store, listening, token)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                take(browser, address_of(listening, token))
            finally:
                server.should_exit = True
                thread.join()
    print(PICTURE)


def take(browser: str, address: str) -> None:
    """Take the picture of the window of the last question."""
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = started.new_page(viewport={"width": 1360, "height": 920}, device_scale_factor=1.5)
        page.goto(f"{address}#/{quote(SESSION)}")
        settle(page)
        page.locator("#turns .turn:not(.later)").first.click()
        settle(page)
        while page.locator("[data-find]").count():  # each is gone when it was clicked
            page.locator("[data-find]").first.click()
        settle(page)
        page.locator("#main").evaluate("m => m.scrollTo(0, 0)")
        page.locator("#store").evaluate("e => { e.textContent = 'sqlite:///muntin-demo.db' }")
        page.screenshot(path=PICTURE)
        started.close()


def settle(page: Page) -> None:
    """Wait until nothing more is coming in."""
    page.wait_for_selector(".message")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


if __name__ == "__main__":
    main()
