"""Chromium, for the tests of the page."""

import pytest

from browser import chromium
from play.pages import FAKE


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One Chromium for all tests that need no microphone of their own."""
    with chromium(tmp_path_factory.mktemp("browser"), *FAKE) as page:
        yield page


@pytest.fixture
def page(browser):
    """Its page, with no complaint, empty before and after."""
    browser.complaints.clear()
    yield browser
    browser.open("about:blank")
