"""The benchmark: seeklog beside its peers, in one run on one machine. README.md says what each row means."""
