"""Power losses on real file systems: images of the possible disks at that moment are mounted and judged."""
