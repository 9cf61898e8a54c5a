"""What we know of each engine, pure: flags, log grammar, metrics, milestones, failures, HTTP facts."""
