"""Tasks: labelled examples, from files or from Python."""
