"""Planning, pruning, choosing and judging of tuning experiments. Pure: nothing here starts, stops or measures."""
