"""A headless Chromium for tests that look at pages, and for the pictures in the docs."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INSTALL = "apt-get install -y chromium chromium-driver && pip install selenium"
"""What a test without a browser says."""

_QUIET = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses to run as root with it, as in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_POLL_S = 0.1


def missing() -> str:
    """Return the command that installs what a browser needs, or "" when all is there."""
    try:
        import selenium
    except ImportError:
        return INSTALL
    del selenium
    return "" if shutil.which("chromium") and shutil.which("chromedriver") else INSTALL


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    """Yield a selenium driver of a Chromium without a profile, whose pages are `width` x `height` pixels."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for word in (*_QUIET, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(word)
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def wait_for(driver: Any, script: str, enough: Callable[[Any], bool] = bool, timeout_s: float = 20.0) -> Any:
    """Return what JavaScript gives once it is `enough`. Raises TimeoutError with the last answer, or its error."""
    deadline, answer = time.monotonic() + timeout_s, None
    while time.monotonic() < deadline:
        answer = driver.execute_script(f"try {{ {script} }} catch (error) {{ return null }}")
        if answer is not None and enough(answer):
            return answer
        time.sleep(_POLL_S)
    raise TimeoutError(f"{script!r} gave {answer!r} after {timeout_s:g} s")
