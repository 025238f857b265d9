"""The targets: each module here enters its own."""
