"""The command line: `seeklog VERB DIR …`.

Data goes to stdout, talk to stderr. A verb is a module in `verbs/`, loaded when it is called; what it needs beyond
the engine (Arrow, DuckDB, Spark) it loads itself, so that the start takes no longer than it must.
"""
