"""One module a verb; its command has the verb's name."""
