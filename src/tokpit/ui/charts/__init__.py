"""Charts: what to draw (`model`), and two engines that draw it in cells behind one protocol."""
