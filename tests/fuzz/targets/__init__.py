"""The targets, which each module here registers."""
