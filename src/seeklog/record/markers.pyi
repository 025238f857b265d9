from collections.abc import Callable

def note_transactions(
    data: bytes, at: int, origin: int, stop: int, limit: int, note: Callable[[int, int, int, int, int], object]
) -> tuple[int, bool]: ...
