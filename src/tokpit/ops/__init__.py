"""What a person can do: commands, the gate, the supervisor and the use cases."""
