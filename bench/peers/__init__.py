"""What seeklog is compared with. Each peer does the same work with the means that it has."""
