"""One library is built per run; every test spoils its own copy."""

from pathlib import Path

import pytest
from hostile_shelf import Shelf, build, copy_shelf
from hypothesis import settings

# The same examples in every run, however busy the machine is.
settings.register_profile("library", deadline=None, derandomize=True)
settings.load_profile("library")


@pytest.fixture(scope="session")
def shelf_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    build(root)
    return root


@pytest.fixture
def shelf(shelf_template: Path, tmp_path: Path) -> Shelf:
    return copy_shelf(shelf_template, tmp_path / "shelf")
