"""Memory of many tasks on one base, in a process of its own: prints bytes of a task, by how the process grows.

python benchmarks/runtime_memory.py SIZE private|gates N
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

from runtime_peers import BASE, Network, lora_rank

from smatter.runtime.shared import SharedRuntime

SMALL_FRACTION = 0.05


def resident_bytes() -> int:
    """Memory that the process has now, with all that was freed given back."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def load_tasks(network: Network, runtime: SharedRuntime, kind: str, n_parameters: int, numbers: range) -> None:
    """Tasks of random groups, with deltas of their own or as gates on the shared one."""
    for number in numbers:
        gates = network.gates(n_parameters, number)
        if kind == "gates":
            runtime.open(f"task {number}", gates)
        else:
            runtime.load(f"task {number}", network.recipe(gates, number))


def main(size: str, kind: str, n_tasks: int) -> None:
    network = Network(size)
    _, n_parameters = lora_rank(network, SMALL_FRACTION, "all")
    runtime = network.runtime if kind == "gates" else SharedRuntime(network.library, {"base": BASE})
    n_first = n_tasks // 10
    load_tasks(network, runtime, kind, n_parameters, range(n_first))  # whatever the first ones bring along
    before = resident_bytes()
    load_tasks(network, runtime, kind, n_parameters, range(n_first, n_first + n_tasks))
    print((resident_bytes() - before) / n_tasks)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
