"""What is kept and given out: runs, reports, comparisons, baselines, imports, recordings."""
