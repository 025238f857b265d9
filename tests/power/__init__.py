"""Power is lost on real file systems: images of what a disk may hold at that moment, mounted and judged."""
