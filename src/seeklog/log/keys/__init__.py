"""Looking up the newest record of a key."""
