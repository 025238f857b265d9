from typing import final

@final
class RecordCursor:
    def __init__(self) -> None: ...
