"""Finding the newest record of a key."""
