/* module_check: what tells of programs rather than runs them: the compile log, the programs that the trace backend kept, and compiling for chips that are not here.
 * Called through the method table of module.c. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../diag/diag.h"
#include "../eager/eager.h"
#include "../pjrt/pjrt.h"
#include "../trace/trace.h"
#include "module.h"

/* Puts `value` (a new reference, taken over; NULL keeps Python's error) into the dictionary. */
static bool put(PyObject *dict, const char *key, PyObject *value) {
  bool done = value && PyDict_SetItemString(dict, key, value) == 0;
  Py_XDECREF(value);
  return done;
}

static PyObject *array_dict(const tern_trace_array *a) {
  PyObject *dims = PyTuple_New(a->rank);
  for (int d = 0; dims && d < a->rank; d++) PyTuple_SET_ITEM(dims, d, PyLong_FromLongLong(a->dims[d]));
  if (!dims) return NULL;
  return Py_BuildValue("{s:s,s:N,s:L,s:s,s:s,s:O,s:O}", "dtype", tern_dtype_name(a->dtype), "dims", dims, "bytes", (long long)a->bytes, "operation",
                       a->operation ? a->operation : "", "line", a->line ? a->line : "", "replaced", a->is_replaced ? Py_True : Py_False, "fresh", a->is_fresh ? Py_True : Py_False);
}

static PyObject *array_list(const tern_trace_array *arrays, int32_t n) {
  PyObject *list = PyList_New(n);
  for (int32_t i = 0; list && i < n; i++) {
    PyObject *one = array_dict(&arrays[i]);
    if (!one) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, one);
  }
  return list;
}

static PyObject *program_dict(const tern_trace_program *k) {
  PyObject *dict = PyDict_New(), *contractions = PyDict_New(), *dtypes = PyList_New(0), *arguments = PyList_New(k->n_parameters);
  bool good = dict && contractions && dtypes && arguments;
  for (int t = 0; good && t < TERN_DTYPE_COUNT; t++) {
    if (k->cost.contractions[t] > 0) good = put(contractions, tern_dtype_name((tern_dtype)t), PyFloat_FromDouble(k->cost.contractions[t]));
    if (good && k->dtypes & 1u << t) {
      PyObject *name = PyUnicode_FromString(tern_dtype_name((tern_dtype)t));
      good = name && PyList_Append(dtypes, name) == 0;
      Py_XDECREF(name);
    }
  }
  for (int32_t i = 0; good && i < k->n_parameters; i++) PyList_SET_ITEM(arguments, i, PyLong_FromLong(k->argument_of_parameter[i]));
  good = good && put(dict, "number", PyLong_FromLong(k->number)) && put(dict, "operations", PyLong_FromLong(k->n_operations)) &&
         put(dict, "line", PyUnicode_FromString(k->line)) && put(dict, "scalars", PyLong_FromLong(k->n_scalars)) &&
         put(dict, "launches", PyLong_FromLongLong(k->launches)) && put(dict, "bytes_in_use", PyLong_FromLongLong(k->bytes_in_use)) &&
         put(dict, "parameters", array_list(k->parameters, k->n_parameters)) && put(dict, "results", array_list(k->results, k->n_results)) &&
         put(dict, "intermediates", array_list(k->intermediates, k->n_intermediates)) && put(dict, "elementwise_flops", PyFloat_FromDouble(k->cost.elementwise)) &&
         put(dict, "transcendentals", PyFloat_FromDouble(k->cost.transcendentals)) && put(dict, "traffic_bytes", PyFloat_FromDouble(k->cost.bytes)) &&
         put(dict, "text", k->text ? PyUnicode_FromString(k->text) : Py_NewRef(Py_None)) &&
         put(dict, "refusal", PyUnicode_FromString(k->refusal ? k->refusal : "")) && put(dict, "contraction_flops", Py_XNewRef(contractions)) &&
         put(dict, "dtypes", Py_XNewRef(dtypes)) && put(dict, "arguments", Py_XNewRef(arguments));
  Py_XDECREF(contractions);
  Py_XDECREF(dtypes);
  Py_XDECREF(arguments);
  if (!good) Py_CLEAR(dict);
  return dict;
}

PyObject *tern_module_trace_programs(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *list = PyList_New(0);
  for (const tern_trace_program *k = tern_trace_programs(); list && k; k = k->next) {
    PyObject *one = program_dict(k);
    if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

PyObject *tern_module_trace_launches(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  size_t n;
  const int32_t *launches = tern_trace_launches(&n);
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; i++) PyList_SET_ITEM(list, (Py_ssize_t)i, PyLong_FromLong(launches[i]));
  return list;
}

PyObject *tern_module_trace_mark(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  tern_trace_mark();
  Py_RETURN_NONE;
}

PyObject *tern_module_trace_reads(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  return PyLong_FromLongLong(tern_trace_reads());
}

/* ---- the program of what is recorded ---- */

/* For the newest reader there is: no platform's liberties, no NaN guards. */
static tern_status write_stablehlo(void *context, const tern_program *program) {
  tern_program *legal = NULL;
  tern_pjrt_signature signature = {0};
  tern_status status = tern_pjrt_legalise(program, tern_pjrt_target_of(""), "StableHLO", &legal);
  if (!status) status = tern_pjrt_text(legal, TERN_TEXT_COMMENTS, false, context, &signature);
  tern_pjrt_signature_free(&signature);
  tern_program_free(legal);
  return status;
}

PyObject *tern_module_stablehlo(PyObject *self, PyObject *args) {
  (void)self;
  int ordinal;
  if (!PyArg_ParseTuple(args, "i", &ordinal)) return NULL;
  tern_device *device;
  char *text = NULL;
  tern_status status = tern_device_get(ordinal, &device);
  if (!status) status = tern_device_show(device, write_stablehlo, &text);
  if (status) return tern_module_raise(status);
  PyObject *result = PyUnicode_FromString(text);
  free(text);
  return result;
}

/* ---- the compile log ---- */

static void append_entry(void *context, const tern_compile_entry *e) {
  char line[1024], changed[1024];
  PyObject *one = Py_BuildValue("{s:L,s:I,s:d,s:O,s:s,s:s,s:s}", "number", (long long)e->number, "operations", e->operations, "seconds", e->seconds, "from_disk",
                                e->from_disk ? Py_True : Py_False, "line", tern_line_describe(e->line, line, sizeof line), "reason", e->reason, "changed_line",
                                tern_line_describe(e->changed_line, changed, sizeof changed));
  if (one) PyList_Append(context, one);
  Py_XDECREF(one);
}

PyObject *tern_module_compile_log(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  PyObject *list = PyList_New(0);
  if (list) tern_compile_log(append_entry, list);
  return list;
}

/* ---- compiling for chips that are not here ---- */

static PyObject *report_dict(const tern_pjrt_ahead_report *r) {
  return Py_BuildValue("{s:d,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:d,s:d,s:d,s:d}", "compile_seconds", r->seconds, "argument_bytes", (long long)r->argument_bytes,
                       "output_bytes", (long long)r->output_bytes, "alias_bytes", (long long)r->alias_bytes, "temporary_bytes", (long long)r->temporary_bytes,
                       "peak_bytes", (long long)r->peak_bytes, "code_bytes", (long long)r->code_bytes, "serialized_bytes", (long long)r->serialized_bytes, "flops",
                       r->flops, "bytes_accessed", r->bytes_accessed, "transcendentals", r->transcendentals, "optimal_seconds", r->optimal_seconds);
}

PyObject *tern_module_compile_ahead(PyObject *self, PyObject *args) {
  (void)self;
  const char *path, *name, *config;
  int partitions;
  PyObject *texts;
  if (!PyArg_ParseTuple(args, "sszO!i", &path, &name, &config, &PyList_Type, &texts, &partitions)) return NULL;
  tern_pjrt_topology topology;
  tern_status status = tern_pjrt_topology_open(path, name, config, &topology);
  if (status) return tern_module_raise(status);
  PyObject *reports = PyList_New(0);
  for (Py_ssize_t i = 0; reports && i < PyList_GET_SIZE(texts); i++) {
    const char *text = PyUnicode_AsUTF8(PyList_GET_ITEM(texts, i));
    tern_pjrt_ahead_report report;
    status = text ? tern_pjrt_compile_ahead(&topology, text, partitions ? partitions : topology.n_devices, &report) : NULL;
    PyObject *one = !text ? NULL : report_dict(&report);
    bool good = one && put(one, "error", PyUnicode_FromString(tern_error_message(status))) && put(one, "code", PyUnicode_FromString(tern_code_name(tern_error_code(status))));
    if (!good || PyList_Append(reports, one) < 0) Py_CLEAR(reports);
    Py_XDECREF(one);
    tern_error_free(status);
  }
  PyObject *result = reports ? Py_BuildValue("{s:s,s:i,s:L,s:N}", "platform", topology.platform, "devices", topology.n_devices, "memory_limit",
                                             (long long)topology.memory_limit, "programs", reports)
                             : NULL;
  tern_pjrt_topology_close(&topology);
  return result;
}
