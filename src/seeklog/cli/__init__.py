"""The command line: `seeklog COMMAND DIR …`.

Data goes to stdout, messages go to stderr. The commands are in `verbs/`. A command's module is imported when the
command runs, and imports optional packages (Arrow, DuckDB, Spark) only where it needs them, to keep start-up fast.
"""
