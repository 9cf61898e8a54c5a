"""What we know of hosts and GPUs, pure: the commands to ask and parsers of their answers."""
