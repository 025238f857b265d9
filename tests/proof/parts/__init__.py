"""The parts of the proof: each module here registers its own with `@part`."""
