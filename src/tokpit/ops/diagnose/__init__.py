"""Evidence for a diagnosis: files, a live server, the history, GPU tools; and the judgement of it."""
