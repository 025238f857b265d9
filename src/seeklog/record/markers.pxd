from seeklog.record.cursor cimport RecordCursor

cdef object report_batch(RecordCursor cursor, object report)
