"""The benchmark: seeklog and its peers in one run on one machine. README.md explains the rows."""
