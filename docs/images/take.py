"""Takes the picture of a report that the README shows: ``python docs/images/take.py ghost-demo/report.html``."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("report.png")

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 1600}, color_scheme="light")
    page.goto(Path(sys.argv[1]).resolve().as_uri())
    page.wait_for_selector("html[data-ready=true]", state="attached")
    page.screenshot(path=PICTURE)
    browser.close()
