"""`seeklog demo`: a tour of seeklog with generated payments.

`payments` generates them, `tour` runs the steps, `killed_writer` is the process that is killed.
"""
