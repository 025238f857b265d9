"""`seeklog demo`: what seeklog does, on made-up payments, in two minutes.

`payments` makes them, `tour` is what is shown, `doomed` the writer that is killed.
"""
