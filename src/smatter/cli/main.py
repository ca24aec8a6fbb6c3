"""`smatter`: the program's entry, its errors and exit codes (0 well, 2 a user's mistake, 1 ours)."""

import io
import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any

import typer

from smatter import __version__
from smatter.cli import (
    adapt,
    calibrate,
    catalogue,
    compose,
    demo,
    evaluate,
    library,
    predict,
    profile,
    suite,
    train,
)
from smatter.cli.output import warn
from smatter.errors import SmatterError

app = typer.Typer(
    name="smatter",
    help="Turn a shelf of checkpoints into one model per task.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(library.app, name="library")
app.command("compose")(compose.compose)
app.command("solve")(adapt.solve)
app.command("adapt")(adapt.adapt)
app.command("predict")(predict.predict_inputs)
app.command("methods")(adapt.list_methods)
app.command("evaluate")(evaluate.evaluate)
app.command("train")(train.train)
app.command("calibrate")(calibrate.calibrate)
app.command("catalogue")(catalogue.catalogue)
app.add_typer(suite.app, name="suite")
app.command("profile")(profile.profile)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Every command takes --json for machines and --debug for a traceback."""
    if version or context.invoked_subcommand is None:
        print(f"smatter {__version__}" if version else context.get_help())
        raise typer.Exit


def run_program() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name the terminal cannot show is no error
    warnings.showwarning = _warn
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, _stop)
    sys.exit(main(sys.argv[1:]))


def _warn(message: Warning | str, *_more: Any, **_others: Any) -> None:
    _complain(f"warning: {message}", 0)


class Stopped(BaseException):
    """A signal asks the program to end; whatever is under way cleans up after itself.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not disturb the cleaning up
    raise Stopped(number)


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit code."""
    debug = "--debug" in arguments
    try:
        result = _run([word for word in arguments if word != "--debug"] or ["--help"])
    except typer.Exit as finished:
        return finished.exit_code
    except (typer.Abort, KeyboardInterrupt, Stopped) as error:
        number = error.number if isinstance(error, Stopped) else signal.SIGINT
        kept = getattr(error, "__notes__", ["what was complete before is kept, nothing half done"])
        return _complain(f"interrupted; {kept[0]}", 128 + number)
    except typer.TyperException as error:
        return _complain(f"{error.format_message()} (see --help)", 2)
    except BrokenPipeError:  # nobody reads on; what Python would still like to write goes nowhere
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, SmatterError):
            return _complain(str(error), 2)
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            return _complain(f"{where}{error.strerror or error}; check the path, its permissions and free space", 2)
        if isinstance(error, MemoryError):
            return _complain("out of memory; close other programs or use a smaller library", 2)
        return _complain(f"internal error: {type(error).__name__}: {error}; run again with --debug and report it", 1)
    return result if isinstance(result, int) else 0


def _run(words: list[str]) -> Any:
    """Run one command; typer's own way of running it would hide how it ended."""
    command = typer.main.get_command(app)
    with command.make_context("smatter", words) as context:
        result = command.invoke(context)
        sys.stdout.flush()
        return result


def _complain(message: str, code: int) -> int:
    warn(message)
    return code
