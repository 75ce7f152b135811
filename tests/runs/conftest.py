"""A real browser for the tests of pages."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync"""


class Browser:
    """Chromium by its driver, with what these tests ask of it."""

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for option in (*OPTIONS.split(), f"--user-data-dir={profile}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_page_load_timeout(60)
        self.driver.command_executor.client_config.timeout = 90  # a browser that hangs would hold up all tests

    def open(self, url: str, width: int = 1280, height: int = 1000, scripts: bool = True) -> None:
        """A page in a window of this size; what earlier pages logged is forgotten."""
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.command("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        self.complaints(), self.requests()
        self.driver.get(url)

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """What the console says since the last time."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What pages asked for since the last time."""
        sent = (json.loads(line["message"])["message"] for line in self.driver.get_log("performance"))
        return [line["params"]["request"]["url"] for line in sent if line["method"] == "Network.requestWillBeSent"]

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def text(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).text

    def wait_for(self, selector: str, text: str) -> None:
        """Until the element has this text: a page that a click leads to may still be loading."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        wait = WebDriverWait(self.driver, 30, ignored_exceptions=[StaleElementReferenceException])
        wait.until(lambda driver: self.text(selector) == text, f"{selector} is not {text}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="selenium drives the browser: pip install selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no browser: apt-get install chromium chromium-driver")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()
