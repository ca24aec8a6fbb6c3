"""What Smatter knows of a network: its modules, and its tensors' names on disk and in memory.

`modules`, `branch`, `configs` and `tokenizer_files` read names and settings only and need no torch; `network`
imports torch when it is called, and transformers through `gate`.
"""
