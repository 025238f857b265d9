"""What the verbs show: text, tables, JSON and pictures of logs, on a terminal or in a file."""
