"""Try to build networks from configs that ask for absurd sizes; tell the time and the memory that it took."""

import json
import resource
import sys
import time
from pathlib import Path

from smatter.backbones.gate import transformers
from smatter.backbones.network import Network
from smatter.errors import IncompatibleSource
from smatter.library.checkpoint import open_checkpoint


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(cases: list[tuple[str, dict[str, object]]]) -> None:
    for folder, _ in cases:  # importing the code of a network takes time and memory, whatever its config says
        Network(open_checkpoint(Path(folder)).config)
    transformers().AutoTokenizer  # noqa: B018
    before, seconds, refused = megabytes(), [], 0
    for folder, settings in cases:
        checkpoint, begin = open_checkpoint(Path(folder)), time.perf_counter()
        try:
            Network(checkpoint.config | settings, checkpoint.tensors)
        except IncompatibleSource:
            refused += 1
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"refused": refused, "seconds": seconds, "megabytes": megabytes() - before}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
