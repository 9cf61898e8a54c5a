"""What a host is and has, as far as a use case asks."""
