from seeklog.record.cursor cimport RecordCursor

cdef RecordCursor _spare_cursor
