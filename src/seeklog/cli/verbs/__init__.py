"""The modules of the commands; `seeklog.cli.catalogue` says which command is in which."""
