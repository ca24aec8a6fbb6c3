"""The stranger who follows the documents: what is shown is compared, and no placeholder is left."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from first_hour_documents import LEFT_OUT, Block, blocks, commands, differs, own_words, pages  # noqa: E402

SHELL = [block for page in pages(ROOT) for block in blocks(page) if block.kind == "shell"]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: f"{block.page}-{block.number}")
def test_no_placeholder_is_left_in_a_command(block: Block) -> None:
    for line, _ in commands(block.text):
        if not any(re.search(pattern, line) for pattern in LEFT_OUT):
            assert not re.findall(r"\b[A-Z]{3,}\b", own_words(line)), line


TOLD = "read 25 examples\nlatin 0.3280 0.2648\nemoji 0.0178 0.4753\nwrote it\n"


@pytest.mark.parametrize(
    "shown",
    ["latin 0.3280 0.2648", "read 25 examples\n...\nwrote it", "read 25 ...", "latin   0.3281  0.2650", ""],
)
def test_output_that_was_told_does_not_differ(shown: str) -> None:
    assert not differs(shown, TOLD)


@pytest.mark.parametrize(
    "shown", ["latin 0.4280 0.2648", "wrote it\nread 25 examples", "read 25 pictures", "latin 0.3280"]
)
def test_output_that_was_not_told_differs(shown: str) -> None:
    assert differs(shown, TOLD)
