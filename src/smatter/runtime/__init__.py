"""Tasks' models at work: one merged network for each, or many tasks on one base."""
