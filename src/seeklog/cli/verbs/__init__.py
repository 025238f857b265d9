"""The modules of the commands; `catalogue` says which command is in which."""
