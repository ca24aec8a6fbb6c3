"""What Smatter knows of a network: its modules, and its tensors' names on disk and in memory.

`modules` reads names only and needs no torch; `names` imports torch and transformers when it is called.
"""
