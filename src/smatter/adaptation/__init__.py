"""From a library and a few labelled examples to a recipe: evidence routing, and the solver on live networks."""
