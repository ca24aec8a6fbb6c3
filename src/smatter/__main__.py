"""`python -m smatter`."""

from smatter.cli.main import run

if __name__ == "__main__":
    run()
