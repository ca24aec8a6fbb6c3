"""Fuzz one target with atheris: `python tests/fuzz/run.py TARGET SECONDS [FOLDER]`.

What is found goes to FOLDER, a new temporary one by default, as a file per input; a finding ends the run with its
traceback and an exit code other than 0. The corpus in tests is read, never written.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
for place in (HERE.parents[1] / "src", HERE.parent, HERE):
    sys.path.insert(0, str(place))


def main(name: str, seconds: int, found: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["smatter"]):
        from targets import CORPUS, MEGABYTES, SECONDS, TARGETS, refused_or_read

        with tempfile.TemporaryDirectory() as folder:
            target = TARGETS[name](Path(folder))
            for seed in sorted((CORPUS / name).iterdir()):  # imports what is needed, instrumented
                refused_or_read(target, seed.read_bytes())
            grown = found / "grown"
            grown.mkdir(parents=True, exist_ok=True)
            options = [
                f"-max_total_time={seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}",
                f"-artifact_prefix={found}/", "-max_len=20000", "-seed=1", "-print_final_stats=1", "-len_control=0",
            ]  # fmt: skip
            atheris.Setup(
                [sys.argv[0], *options, str(grown), str(CORPUS / name)], lambda data: refused_or_read(target, data)
            )
            atheris.Fuzz()


if __name__ == "__main__":
    place = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(tempfile.mkdtemp(prefix="smatter-fuzz-"))
    main(sys.argv[1], int(sys.argv[2]), place)
