"""Records of options: their fields are options, their defaults hold, and the command gets the record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer

from smatter.cli.grouped import grouped


@dataclass(frozen=True)
class Colour:
    name: Annotated[str | None, typer.Option("--colour", help="Which.")] = None
    shade: Annotated[int, typer.Option(min=0, max=9)] = 3


def run(words: list[str]) -> tuple[Path, Colour, bool]:
    got = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @grouped
    def paint(
        folder: Annotated[Path, typer.Argument()], colour: Colour, wet: Annotated[bool, typer.Option("--wet")] = False
    ) -> None:
        """Paint."""
        got.append((folder, colour, wet))

    typer.main.get_command(app).main(words, standalone_mode=False)
    return got[0]


def test_a_record_is_what_was_said() -> None:
    assert run(["wall", "--colour", "red", "--wet"]) == (Path("wall"), Colour("red", 3), True)


def test_defaults_are_those_of_the_record() -> None:
    assert run(["wall"]) == (Path("wall"), Colour(), False)


def test_limits_of_options_hold() -> None:
    with pytest.raises(typer.TyperException, match="less than or equal to 9"):
        run(["wall", "--shade", "10"])
