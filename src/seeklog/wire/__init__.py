"""Kafka's protocol as data: the messages and their versions, the codec, frames. It knows no store.

`tables.txt` lists the fields of each message, `table` reads it, and `messages` has a class for each message. `codec`
encodes and decodes them, and is compiled. `framing` adds the headers of requests and responses.
"""

# Importing it installs the finder that SEEKLOG_PURE=1 asks for.
import seeklog.record  # noqa: F401
