# The fields of a structure that is being decoded. items.py is the interpreted twin.
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM

cdef extern from *:
    """
    static PyObject *seeklog_new_tuple(PyObject *type, Py_ssize_t size) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    }
    """
    object seeklog_new_tuple(object type, Py_ssize_t size)

cdef inline object new_items(object type, tuple defaults):
    cdef Py_ssize_t index
    cdef Py_ssize_t size = PyTuple_GET_SIZE(defaults)
    items = seeklog_new_tuple(type, size)
    for index in range(size):
        item = <object> PyTuple_GET_ITEM(defaults, index)
        Py_INCREF(item)
        PyTuple_SET_ITEM(items, index, item)
    return items

cdef inline void put_item(object items, Py_ssize_t index, object item) noexcept:
    cdef PyObject *old = PyTuple_GET_ITEM(items, index)
    Py_INCREF(item)
    PyTuple_SET_ITEM(items, index, item)
    Py_DECREF(<object> old)

cdef inline object finished_items(object type, object items):
    return items
