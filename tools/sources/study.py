"""Train networks that do not ship, to study those that do: python tools/sources/study.py --work DIR."""

import argparse
from pathlib import Path

from build import inside, train_all
from plan import BASE_EVERY, TUNING, Job


def main() -> None:
    """The base once more, for as many steps as a specialist, on all domains: was it trained to the end?"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of `build.py`, with the base in it")
    train_all([Job("base-longer", inside(), TUNING, "base", BASE_EVERY)], parser.parse_args().work, 2)


if __name__ == "__main__":
    main()
