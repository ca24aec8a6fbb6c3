"""`python -m smatter`."""

from smatter.cli.main import run_program

if __name__ == "__main__":
    run_program()
