"""One module for each family of figures; each yields rows through `measure(bench)`."""
