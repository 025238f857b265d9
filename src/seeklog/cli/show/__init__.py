"""The output of the commands: text, tables, JSON and maps of logs."""
