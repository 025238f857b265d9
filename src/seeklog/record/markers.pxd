from seeklog.record.cursor cimport RecordCursor

cdef long long marker_type(RecordCursor cursor) except? -2
