"""The solver (the papers' oracle): weights on simplices and a sparse residual that fit a support set.

One loop drives every algorithm; an algorithm is a file. Everything runs on batches of tasks: a single task is a
batch of one. Nothing here knows a network: see `problem`.
"""
