/* Functions of torch_tern._C that lie outside module.c, and what they share. Needs Python.h. */
#ifndef TERN_TORCH_MODULE_H
#define TERN_TORCH_MODULE_H
#include "tern/status.h"

/* Raises the status as a Python exception of its kind and frees it; returns NULL. */
PyObject *tern_module_raise(tern_status status);

/* ---- module_check.c ---- */
PyObject *tern_module_trace_programs(PyObject *self, PyObject *none);
PyObject *tern_module_trace_launches(PyObject *self, PyObject *none);
PyObject *tern_module_trace_mark(PyObject *self, PyObject *none);
PyObject *tern_module_trace_reads(PyObject *self, PyObject *none);
PyObject *tern_module_stablehlo(PyObject *self, PyObject *args);
PyObject *tern_module_compile_log(PyObject *self, PyObject *none);
PyObject *tern_module_compile_ahead(PyObject *self, PyObject *args);

#endif
