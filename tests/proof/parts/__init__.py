"""The parts of the proof: each module here enters its own with `@part`."""
