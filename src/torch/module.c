/* module: torch_tern._C, what Python calls directly: modes, statistics, settings, devices. Everything else reaches tern through PyTorch's dispatcher.
 *
 * Thin on purpose: a function reads its arguments, calls the core without the GIL where that may wait, and turns a status into a Python exception. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../aten/aten.h"
#include "../diag/diag.h"
#include "module.h"
#include "../eager/profile.h"
#include "pyframe.h"
#include "shim.h"

/* torch.OutOfMemoryError is a RuntimeError of PyTorch's own; what is borrowed stays alive in its module. */
static PyObject *out_of_memory_error(void) {
  PyObject *torch = PyImport_ImportModule("torch"), *type = torch ? PyObject_GetAttrString(torch, "OutOfMemoryError") : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(type);
  if (!type) PyErr_Clear();
  return type ? type : PyExc_MemoryError;
}

static PyObject *raise_text(tern_code code, const char *message) {
  PyObject *type = PyExc_RuntimeError;
  switch (tern_code_exception(code)) {
    case TERN_RAISES_IndexError: type = PyExc_IndexError; break;
    case TERN_RAISES_NotImplementedError: type = PyExc_NotImplementedError; break;
    case TERN_RAISES_ValueError: type = PyExc_ValueError; break;
    case TERN_RAISES_ImportError: type = PyExc_ImportError; break;
    case TERN_RAISES_OutOfMemoryError: type = out_of_memory_error(); break;
    case TERN_RAISES_RuntimeError: break;
  }
  return PyErr_Format(type, "[%s] %s", tern_code_label(code), message);
}

PyObject *tern_module_raise(tern_status status) {
  raise_text(tern_error_code(status), tern_error_message(status));
  tern_error_free(status);
  return NULL;
}

static PyObject *none_or_raise(tern_status status) {
  if (status) return tern_module_raise(status);
  Py_RETURN_NONE;
}

/* -1: the current device. NULL with a Python exception. */
static tern_device *device_arg(PyObject *args) {
  int ordinal = -1;
  tern_device *device = NULL;
  if (!PyArg_ParseTuple(args, "|i", &ordinal)) return NULL;
  tern_status status = tern_shim_device(ordinal, &device);
  if (status) tern_module_raise(status);
  return device;
}

/* ---- registration and the end ---- */
static PyObject *py_register(PyObject *self, PyObject *args) {
  (void)self;
  static bool registered;
  PyObject *folders;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &folders)) return NULL;
  if (registered) Py_RETURN_NONE;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders); i++) {
    const char *folder = PyUnicode_AsUTF8(PyTuple_GET_ITEM(folders, i));
    if (!folder) return NULL;
    tern_python_library_root(folder);
  }
  tern_python_lines_install();
  tern_status status = tern_shim_register();
  registered = !status;
  return none_or_raise(status);
}

static PyObject *py_exit(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  if (!tern_is_forked_child()) {
    tern_status status;
    Py_BEGIN_ALLOW_THREADS
    status = tern_synchronize_all();
    Py_END_ALLOW_THREADS
    tern_error_free(status); /* nobody is left to be told */
  }
  tern_python_lines_stop();
  tern_shim_exit();
  Py_RETURN_NONE;
}

static PyObject *py_missing_names(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  const char *const *names;
  int n = tern_shim_missing(&names);
  PyObject *list = PyList_New(n);
  for (int i = 0; list && i < n; i++) PyList_SET_ITEM(list, i, PyUnicode_FromString(names[i]));
  return list;
}

static PyObject *py_native_names(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    const char *forms[] = {row->functional, row->inplace, row->out};
    for (int f = 0; f < 3; f++) {
      PyObject *name = forms[f] ? PyUnicode_FromString(forms[f]) : NULL;
      if (name) PyList_Append(list, name);
      Py_XDECREF(name);
    }
  }
  return list;
}

/* ---- devices ---- */
static PyObject *py_device_count(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  int n = 0;
  tern_status status;
  Py_BEGIN_ALLOW_THREADS
  status = tern_device_count(&n);
  Py_END_ALLOW_THREADS
  return status ? tern_module_raise(status) : PyLong_FromLong(n);
}

static PyObject *py_device_info(PyObject *self, PyObject *args) {
  (void)self;
  tern_device *device = device_arg(args);
  if (!device) return NULL;
  const tern_backend_info *info = tern_device_info(device);
  return Py_BuildValue("{s:s,s:s,s:O,s:O,s:O,s:O,s:O,s:L}", "name", info->name, "platform", info->platform, "host_addressable",
                       info->host_addressable ? Py_True : Py_False, "static_shapes", info->static_shapes ? Py_True : Py_False, "has_f64",
                       info->has_f64 ? Py_True : Py_False, "has_i64", info->has_i64 ? Py_True : Py_False, "has_complex",
                       info->has_complex ? Py_True : Py_False, "memory_limit", (long long)info->memory_limit);
}

static PyObject *py_flush(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_status status;
  Py_BEGIN_ALLOW_THREADS
  status = tern_shim_flush();
  Py_END_ALLOW_THREADS
  return none_or_raise(status);
}

static PyObject *py_is_forked_child(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  return PyBool_FromLong(tern_is_forked_child());
}

static PyObject *py_random_get(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  uint64_t seed, offset;
  if (!PyArg_ParseTuple(args, "i", &ordinal)) return NULL;
  tern_status status = tern_shim_random_get(ordinal, &seed, &offset);
  return status ? tern_module_raise(status) : Py_BuildValue("KK", (unsigned long long)seed, (unsigned long long)offset);
}

static PyObject *py_random_set(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  unsigned long long seed, offset;
  if (!PyArg_ParseTuple(args, "iKK", &ordinal, &seed, &offset)) return NULL;
  return none_or_raise(tern_shim_random_set(ordinal, seed, offset));
}

static void keep_bytes(void *context, const void *bytes, size_t count) { *(PyObject **)context = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)count); }

static PyObject *py_random_state_get(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  PyObject *state = NULL;
  if (!PyArg_ParseTuple(args, "i", &ordinal)) return NULL;
  tern_status status = tern_shim_random_state_get(ordinal, keep_bytes, &state);
  return status ? tern_module_raise(status) : state;
}

static PyObject *py_random_state_set(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  const char *bytes;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "iy#", &ordinal, &bytes, &count)) return NULL;
  return none_or_raise(tern_shim_random_state_set(ordinal, bytes, (size_t)count));
}

static PyObject *py_get_rng(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  return PyUnicode_FromString(tern_shim_draws_on_host_get() ? "cpu" : "tern");
}

static PyObject *py_set_rng(PyObject *self, PyObject *args) {
  (void)self;
  const char *name;
  if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
  if (strcmp(name, "cpu") && strcmp(name, "tern")) return PyErr_Format(PyExc_ValueError, "random numbers are drawn by tern or cpu, not '%s'", name);
  tern_shim_draws_on_host_set(!strcmp(name, "cpu"));
  Py_RETURN_NONE;
}

/* ---- modes, settings, statistics ---- */
static const char *const mode_names[] = {"fused", "strict", "debug"};

static PyObject *py_get_mode(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  return PyUnicode_FromString(mode_names[tern_mode_get()]);
}

static PyObject *py_set_mode(PyObject *self, PyObject *args) {
  (void)self;
  const char *name;
  if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
  for (int m = 0; m < 3; m++)
    if (!strcmp(name, mode_names[m])) {
      Py_BEGIN_ALLOW_THREADS
      tern_mode_set((tern_mode)m);
      Py_END_ALLOW_THREADS
      Py_RETURN_NONE;
    }
  return tern_module_raise(tern_error_new(TERN_BAD_SETTING, "the mode is fused, strict or debug, not '%s'", name));
}

static PyObject *py_settings(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *rows = PyList_New(0);
  for (int s = 0; rows && s < TERN_SETTING_COUNT; s++) {
    PyObject *row = Py_BuildValue("(sss)", tern_setting_variable((tern_setting)s), tern_setting_text((tern_setting)s), tern_setting_help((tern_setting)s));
    if (row) PyList_Append(rows, row);
    Py_XDECREF(row);
  }
  return rows;
}

static PyObject *py_set_setting(PyObject *self, PyObject *args) {
  (void)self;
  const char *variable, *value;
  if (!PyArg_ParseTuple(args, "ss", &variable, &value)) return NULL;
  for (int s = 0; s < TERN_SETTING_COUNT; s++)
    if (!strcmp(variable, tern_setting_variable((tern_setting)s))) {
      tern_setting_override((tern_setting)s, value);
      Py_RETURN_NONE;
    }
  return tern_module_raise(tern_error_new(TERN_BAD_SETTING, "tern has no setting %s", variable));
}

static PyObject *py_stats(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_eager_stats s;
  tern_stats(&s);
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:d}", "nodes", (long long)s.nodes, "programs", (long long)s.programs, "compiled",
                       (long long)s.compiled, "loaded", (long long)s.loaded, "cached", (long long)s.cached, "fallbacks", (long long)s.fallbacks, "host_draws", (long long)s.host_draws, "gathers", (long long)s.gathers,
                       "live_buffers", (long long)s.live_buffers, "live_versions", (long long)s.live_versions, "compile_seconds", s.compile_seconds);
}

static void append_fallback(void *context, const char *name, uint32_t line, int64_t count) {
  char where[1024];
  PyObject *row = Py_BuildValue("(ssL)", name, tern_line_describe(line, where, sizeof where), (long long)count);
  if (row) PyList_Append(context, row);
  Py_XDECREF(row);
}

static PyObject *py_fallbacks(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *list = PyList_New(0);
  if (list) tern_stats_fallbacks(append_fallback, list);
  return list;
}

static PyObject *py_reset_stats(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_stats_reset();
  Py_RETURN_NONE;
}

/* ---- profiling ---- */
static PyObject *py_profile_start(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_profile_start();
  Py_RETURN_NONE;
}

static PyObject *py_profile_stop(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_profile_stop();
  Py_RETURN_NONE;
}

static void append_event(void *context, const tern_profile_event *e) {
  char where[1024];
  PyObject *row = Py_BuildValue("{s:s,s:s,s:i,s:s,s:i,s:L,s:L,s:L,s:L,s:L}", "kernel", e->kernel, "operators", e->operators, "n_operators", (int)e->n_operators, "line",
                                tern_line_describe(e->line, where, sizeof where), "device", e->device, "program", (long long)e->program, "start_ns",
                                (long long)e->start, "end_ns", (long long)e->end, "flops", (long long)e->flops, "bytes", (long long)e->bytes);
  if (row) PyList_Append(context, row);
  Py_XDECREF(row);
}

static PyObject *py_profile_events(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *list = PyList_New(0);
  int64_t lost = list ? tern_profile_each(append_event, list) : 0;
  return list ? Py_BuildValue("(NL)", list, (long long)lost) : NULL;
}

static PyObject *py_device_limits(PyObject *self, PyObject *args) {
  (void)self;
  tern_device *device = device_arg(args);
  if (!device) return NULL;
  double flops, bytes;
  Py_BEGIN_ALLOW_THREADS
  tern_device_limits(device, &flops, &bytes);
  Py_END_ALLOW_THREADS
  return Py_BuildValue("(dd)", flops, bytes);
}

static PyObject *py_line(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  char where[1024];
  return PyUnicode_FromString(tern_line_describe(tern_python_line(), where, sizeof where));
}

/* ---- the module ---- */
static PyMethodDef methods[] = {
  {"register", py_register, METH_VARARGS, "register(folders): registers tern with PyTorch; code below the folders is never the user's line"},
  {"exit", py_exit, METH_NOARGS, "drains the queues; afterwards tern's storages leak on purpose"},
  {"missing_names", py_missing_names, METH_NOARGS, "names in the operator table without a schema in this PyTorch"},
  {"native_names", py_native_names, METH_NOARGS, "names in the operator table"},
  {"device_count", py_device_count, METH_NOARGS, "how many devices there are; raises where TERN_DEVICE names none"},
  {"device_info", py_device_info, METH_VARARGS, "device_info(ordinal=-1)"},
  {"random_get", py_random_get, METH_VARARGS, "random_get(ordinal): seed and offset of the device's stream"},
  {"random_set", py_random_set, METH_VARARGS, "random_set(ordinal, seed, offset)"},
  {"random_state_get", py_random_state_get, METH_VARARGS, "random_state_get(ordinal): the state of the device's generator as bytes"},
  {"random_state_set", py_random_state_set, METH_VARARGS, "random_state_set(ordinal, bytes)"},
  {"get_rng", py_get_rng, METH_NOARGS, "tern or cpu: whose stream random operators draw from"},
  {"set_rng", py_set_rng, METH_VARARGS, "set_rng(name)"},
  {"flush", py_flush, METH_NOARGS, "hands what is recorded to the devices, without waiting"},
  {"is_forked_child", py_is_forked_child, METH_NOARGS, "whether this process is a child of one that opened a device"},
  {"get_mode", py_get_mode, METH_NOARGS, "fused, strict or debug"},
  {"set_mode", py_set_mode, METH_VARARGS, "set_mode(name)"},
  {"settings", py_settings, METH_NOARGS, "(variable, value, help) of every setting"},
  {"set_setting", py_set_setting, METH_VARARGS, "set_setting(variable, value)"},
  {"stats", py_stats, METH_NOARGS, "counters since the last reset, and what is alive"},
  {"fallbacks", py_fallbacks, METH_NOARGS, "(operator, line, count) of operators served by PyTorch's CPU kernels"},
  {"stablehlo", tern_module_stablehlo, METH_VARARGS, "stablehlo(ordinal): the text of what is recorded and has not run"},
  {"compile_log", tern_module_compile_log, METH_NOARGS, "a dictionary for each program that had to be made, the oldest first"},
  {"reset_stats", py_reset_stats, METH_NOARGS, "sets the counters to zero"},
  {"profile_start", py_profile_start, METH_NOARGS, "notes each kernel that runs from now on; forgets those noted before"},
  {"profile_stop", py_profile_stop, METH_NOARGS, "ends that"},
  {"profile_events", py_profile_events, METH_NOARGS, "(the kernels noted, in the order they ran; how many more there was no room for)"},
  {"device_limits", py_device_limits, METH_VARARGS, "device_limits(ordinal=-1): f32 operations and bytes per second that the hardware can do; 0: unknown"},
  {"line", py_line, METH_NOARGS, "the line that tern would note for an operator called here"},
  {"trace_programs", tern_module_trace_programs, METH_NOARGS, "what TERN_DEVICE=trace kept: a dictionary for each program"},
  {"trace_launches", tern_module_trace_launches, METH_NOARGS, "numbers of the programs launched, in order; -1 is a mark"},
  {"trace_mark", tern_module_trace_mark, METH_NOARGS, "a step ends here"},
  {"trace_reads", tern_module_trace_reads, METH_NOARGS, "how many values were read as zeros"},
  {"compile_ahead", tern_module_compile_ahead, METH_VARARGS,
   "compile_ahead(plugin, topology, config, texts, partitions): compiles StableHLO for chips that are not here; 0 partitions: one on each device"},
  {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch_tern._C", "tern's native part", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
