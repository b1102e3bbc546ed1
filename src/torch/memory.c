/* The part of torch_tern._C that python/torch_tern/memory.py is made of: what is alive on a device, and the history of its memory. Places are given as
 * tern_line_describe writes them; that they need no GIL does not matter here. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../diag/diag.h"
#include "module.h"
#include "../eager/eager.h"
#include "shim.h"

static PyObject *place_of(uint32_t line) {
  char where[1024];
  return PyUnicode_FromString(tern_line_describe(line, where, sizeof where));
}

static PyObject *dims_of(int rank, const int64_t *dims) {
  PyObject *tuple = PyTuple_New(rank);
  for (int d = 0; tuple && d < rank; d++) PyTuple_SET_ITEM(tuple, d, PyLong_FromLongLong(dims[d]));
  return tuple;
}

/* Appends a row, which is taken over; false with a Python exception. */
static bool append(PyObject *list, PyObject *row) {
  bool fine = row && PyList_Append(list, row) == 0;
  Py_XDECREF(row);
  return fine;
}

/* False with a Python exception. *device is NULL where the device is not open: then nothing is alive on it. */
static bool device_arg(PyObject *args, tern_device **device) {
  int ordinal;
  if (!PyArg_ParseTuple(args, "i", &ordinal)) return false;
  *device = tern_device_if_open(ordinal);
  return true;
}

static PyObject *py_live(PyObject *self, PyObject *args) {
  (void)self;
  tern_device *device;
  if (!device_arg(args, &device)) return NULL;
  if (!device) return PyList_New(0);
  tern_live *live;
  int n;
  Py_BEGIN_ALLOW_THREADS
  tern_device_settle(device);
  n = tern_device_live(device, &live);
  Py_END_ALLOW_THREADS
  PyObject *rows = PyList_New(0);
  for (int i = 0; rows && i < n; i++)
    if (!append(rows, Py_BuildValue("(LisNN)", (long long)live[i].bytes, live[i].count, tern_dtype_name(live[i].dtype), dims_of(live[i].rank, live[i].dims),
                                    place_of(live[i].line))))
      Py_CLEAR(rows);
  free(live);
  return rows;
}

static PyObject *py_blocks(PyObject *self, PyObject *args) {
  (void)self;
  tern_device *device;
  if (!device_arg(args, &device)) return NULL;
  if (!device) return PyList_New(0);
  tern_memory_block *blocks;
  int n;
  Py_BEGIN_ALLOW_THREADS
  tern_device_settle(device);
  n = tern_device_blocks(device, &blocks);
  Py_END_ALLOW_THREADS
  PyObject *rows = PyList_New(0);
  for (int i = 0; rows && i < n; i++)
    if (!append(rows, Py_BuildValue("(KLsNN)", (unsigned long long)blocks[i].address, (long long)blocks[i].bytes, tern_dtype_name(blocks[i].dtype),
                                    dims_of(blocks[i].rank, blocks[i].dims), place_of(blocks[i].line))))
      Py_CLEAR(rows);
  free(blocks);
  return rows;
}

static PyObject *py_history(PyObject *self, PyObject *args) {
  (void)self;
  Py_ssize_t most;
  if (!PyArg_ParseTuple(args, "n", &most)) return NULL;
  if (most <= 0) tern_history_stop();
  tern_status status = most > 0 ? tern_history_start((size_t)most) : NULL;
  if (status) return tern_module_raise(status);
  Py_RETURN_NONE;
}

static PyObject *py_events(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  static const char *const actions[] = {[TERN_MEMORY_MADE] = "alloc", [TERN_MEMORY_FREED] = "free", [TERN_MEMORY_REFUSED] = "oom"};
  tern_memory_event *events;
  size_t n = tern_history_events(&events);
  PyObject *rows = PyList_New(0);
  for (size_t i = 0; rows && i < n; i++)
    if (!append(rows, Py_BuildValue("(siKLLNz)", actions[events[i].action], events[i].device, (unsigned long long)events[i].address, (long long)events[i].bytes,
                                    (long long)events[i].microseconds, place_of(events[i].line), events[i].operation)))
      Py_CLEAR(rows);
  free(events);
  return rows;
}

static PyObject *py_fraction(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  double fraction = 0;
  if (!PyArg_ParseTuple(args, "i|d", &ordinal, &fraction)) return NULL;
  tern_device *device;
  tern_status status = tern_shim_device(ordinal, &device);
  if (!status && PyTuple_GET_SIZE(args) > 1) status = tern_device_set_memory_fraction(device, fraction);
  return status ? tern_module_raise(status) : PyFloat_FromDouble(tern_device_memory_fraction(device));
}

static PyObject *py_host(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  int64_t f[4][4];
  tern_shim_host_memory(f);
  PyObject *rows = PyList_New(0);
  for (int i = 0; rows && i < 4; i++)
    if (!append(rows, Py_BuildValue("(LLLL)", (long long)f[i][0], (long long)f[i][1], (long long)f[i][2], (long long)f[i][3]))) Py_CLEAR(rows);
  return rows;
}

static PyObject *py_host_reset(PyObject *self, PyObject *peaks) {
  (void)self;
  if (PyObject_IsTrue(peaks)) tern_shim_host_memory_reset_peaks();
  else tern_shim_host_memory_reset_totals();
  Py_RETURN_NONE;
}

PyMethodDef tern_memory_methods[] = {
  {"memory_live", py_live, METH_VARARGS, "memory_live(ordinal): (bytes, count, dtype, dims, line) of live tensors, alike ones together, the largest first"},
  {"memory_blocks", py_blocks, METH_VARARGS, "memory_blocks(ordinal): (address, bytes, dtype, dims, line) of live tensors, piece by piece"},
  {"memory_history", py_history, METH_VARARGS, "memory_history(most): keeps the newest events; 0 stops, and keeps what there is"},
  {"memory_events", py_events, METH_NOARGS, "(action, device, address, bytes, microseconds, line, operation), oldest first"},
  {"memory_fraction", py_fraction, METH_VARARGS, "memory_fraction(ordinal[, fraction]): the part of a device's memory that may be used, set first where it is given"},
  {"memory_host", py_host, METH_NOARGS, "active blocks, active bytes, blocks and bytes of pinned host memory, each (current, peak, allocated, freed)"},
  {"memory_host_reset", py_host_reset, METH_O, "memory_host_reset(peaks): True resets the peaks, False the totals"},
  {NULL, NULL, 0, NULL},
};
