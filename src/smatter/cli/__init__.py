"""The commands: parse, validate, call; nothing else."""
