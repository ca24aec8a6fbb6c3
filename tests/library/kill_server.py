"""A process that has imported everything, and forks a child per request to run one command and die on the way.

Each line on standard input is a request in JSON: `words`, the command line; `at`, the step before which the child
kills itself, or null; `after`, the seconds after which it is killed from outside, or null; `slow`, seconds to sleep
at every step. Steps are the beginnings and ends of all calls that change the disk. The answer is a line of JSON.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from disk_calls import hook_disk

from smatter.cli.main import main


def run_child(request: dict[str, Any], results: int) -> None:
    """Run the command in this process, which ends here."""
    steps: list[str] = []

    def step(call: str) -> None:
        if len(steps) == request["at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(call)
        time.sleep(request["slow"])

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    hook_disk(setattr, lambda call, _: step(call), lambda call, _: step(f"{call} done"), deletions=True)
    code = main(request["words"])
    os.write(results, json.dumps(steps).encode())
    os._exit(code)


def serve(request: dict[str, Any]) -> dict[str, Any]:
    receiver, sender = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            run_child(request, sender)
        finally:
            os._exit(99)
    os.close(sender)
    if request["after"] is not None:
        time.sleep(request["after"])
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - started
    steps = b"".join(iter(lambda: os.read(receiver, 1 << 16), b""))
    os.close(receiver)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "seconds": seconds, "steps": json.loads(steps) if steps else None}


def warm_up() -> None:
    """Load what the commands load, so that a child spends its time on its work."""
    import numpy as np

    import smatter.library.edit
    import smatter.library.export
    import smatter.library.mergekit  # noqa: F401
    from smatter.compose.execute import blend

    values = np.ones(8, np.float32)
    blend([values, values], ["F32", "F32"], [0.5, 0.5], np.empty_like(values), "F32")


if __name__ == "__main__":
    warm_up()
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
