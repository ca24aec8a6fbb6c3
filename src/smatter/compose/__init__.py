"""From weights and a residual to a task's parameters: mixture, recipe, plan, and the pass that computes it.

Works on arrays it is given; knows no files. bfloat16 arrays travel as their 16-bit patterns (numpy has no
bfloat16), so every array comes with its dtype's name from the safetensors header.
"""
