/* Compiling for chips that are not in this machine: a topology stands for them, and the plug-in's compiler says what a program would need there. No client is
 * made and nothing runs. Called by the host language, in a process of its own (a compiler may end it). */
#include "pjrt.h"

static int64_t named_number(const pjrt_named_value *values, size_t n, const char *name, int64_t otherwise) {
  for (size_t i = 0; i < n; i++)
    if (values[i].type == PJRT_VALUE_INT64 && values[i].name_size == strlen(name) && !memcmp(values[i].name, name, values[i].name_size)) return values[i].int64_value;
  return otherwise;
}

static double named_float(const pjrt_named_value *values, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (values[i].type == PJRT_VALUE_FLOAT && values[i].name_size == strlen(name) && !memcmp(values[i].name, name, values[i].name_size))
      return (double)values[i].float_value;
  return -1;
}

tern_status tern_pjrt_topology_open(const char *path, const char *name, const char *config, tern_pjrt_topology *out) {
  *out = (tern_pjrt_topology){0};
  int64_t stablehlo[3];
  TERN_TRY(tern_pjrt_library_open(path, NULL, NULL, &out->api, stablehlo));
  const pjrt_api *api = out->api;
  if (!TERN_PJRT_HAS(api, TopologyDescription_Create) || !TERN_PJRT_HAS(api, Compile) || !TERN_PJRT_HAS(api, TopologyDescription_GetDeviceDescriptions))
    return tern_error_new(TERN_UNSUPPORTED, "the plug-in %s cannot compile for chips that are not here (no PJRT_TopologyDescription_Create or PJRT_Compile)", path);
  pjrt_named_value options[2] = {
      {.struct_size = sizeof options[0], .name = "target_config", .name_size = 13, .type = PJRT_VALUE_STRING, .string_value = config, .value_size = config ? strlen(config) : 0},
      {.struct_size = sizeof options[0], .name = "topology", .name_size = 8, .type = PJRT_VALUE_STRING, .string_value = name, .value_size = strlen(name)}};
  TERN_PJRT_ARGS(TopologyDescription_Create, create, .topology_name = name, .topology_name_size = strlen(name), .create_options = options,
                 .num_options = config ? 2 : 0);
  TERN_TRY(tern_error_prefix(tern_pjrt_status(api, api->TopologyDescription_Create(&create), "PJRT_TopologyDescription_Create"), "no topology '%s'", name));
  out->handle = create.topology;

  TERN_PJRT_ARGS(TopologyDescription_GetDeviceDescriptions, devices, .topology = out->handle);
  tern_status status =
      tern_pjrt_status(api, api->TopologyDescription_GetDeviceDescriptions(&devices), "PJRT_TopologyDescription_GetDeviceDescriptions");
  if (status) {
    tern_pjrt_topology_close(out);
    return status;
  }
  out->n_devices = (int)devices.num_descriptions;
  if (TERN_PJRT_HAS(api, TopologyDescription_Attributes)) {
    TERN_PJRT_ARGS(TopologyDescription_Attributes, attributes, .topology = out->handle);
    status = tern_pjrt_status(api, api->TopologyDescription_Attributes(&attributes), "PJRT_TopologyDescription_Attributes");
    if (!status) out->memory_limit = named_number(attributes.attributes, attributes.num_attributes, "device_memory_bytes_limit", 0);
    tern_error_free(status);
  }
  if (TERN_PJRT_HAS(api, TopologyDescription_PlatformVersion)) {
    TERN_PJRT_ARGS(TopologyDescription_PlatformVersion, version, .topology = out->handle);
    status = tern_pjrt_status(api, api->TopologyDescription_PlatformVersion(&version), "PJRT_TopologyDescription_PlatformVersion");
    if (!status) snprintf(out->platform, sizeof out->platform, "%.*s", (int)(version.platform_version_size < 190 ? version.platform_version_size : 190),
                          version.platform_version);
    tern_error_free(status);
  }
  return NULL;
}

void tern_pjrt_topology_close(tern_pjrt_topology *topology) {
  if (!topology->handle) return;
  if (TERN_PJRT_HAS(topology->api, TopologyDescription_Destroy)) {
    TERN_PJRT_ARGS(TopologyDescription_Destroy, destroy, .topology = topology->handle);
    tern_error_free(tern_pjrt_status(topology->api, topology->api->TopologyDescription_Destroy(&destroy), "PJRT_TopologyDescription_Destroy"));
  }
  topology->handle = NULL;
}

/* Each of the three is optional, and a plug-in that has the entry may still not serve it. */
static void read_report(const pjrt_api *api, pjrt_executable *executable, tern_pjrt_ahead_report *out) {
  if (TERN_PJRT_HAS(api, Executable_GetCompiledMemoryStats)) {
    TERN_PJRT_ARGS(Executable_GetCompiledMemoryStats, memory, .executable = executable, .peak_memory_in_bytes = -1);
    tern_status status = tern_pjrt_status(api, api->Executable_GetCompiledMemoryStats(&memory), "PJRT_Executable_GetCompiledMemoryStats");
    if (!status) {
      out->argument_bytes = memory.argument_size_in_bytes;
      out->output_bytes = memory.output_size_in_bytes;
      out->alias_bytes = memory.alias_size_in_bytes;
      out->temporary_bytes = memory.temp_size_in_bytes;
      out->peak_bytes = memory.peak_memory_in_bytes;
      out->code_bytes = memory.generated_code_size_in_bytes;
    }
    tern_error_free(status);
  }
  if (TERN_PJRT_HAS(api, Executable_GetCostAnalysis)) {
    TERN_PJRT_ARGS(Executable_GetCostAnalysis, cost, .executable = executable);
    tern_status status = tern_pjrt_status(api, api->Executable_GetCostAnalysis(&cost), "PJRT_Executable_GetCostAnalysis");
    if (!status) {
      out->flops = named_float(cost.properties, cost.num_properties, "flops");
      out->bytes_accessed = named_float(cost.properties, cost.num_properties, "bytes accessed");
      out->transcendentals = named_float(cost.properties, cost.num_properties, "transcendentals");
      out->optimal_seconds = named_float(cost.properties, cost.num_properties, "optimal_seconds");
    }
    tern_error_free(status);
  }
  if (TERN_PJRT_HAS(api, Executable_Serialize)) {
    TERN_PJRT_ARGS(Executable_Serialize, serialize, .executable = executable);
    tern_status status = tern_pjrt_status(api, api->Executable_Serialize(&serialize), "PJRT_Executable_Serialize");
    if (!status) {
      out->serialized_bytes = (int64_t)serialize.serialized_bytes_size;
      if (serialize.serialized_executable_deleter) serialize.serialized_executable_deleter(serialize.serialized_executable);
    }
    tern_error_free(status);
  }
}

tern_status tern_pjrt_compile_ahead(const tern_pjrt_topology *topology, const char *text, int partitions, tern_pjrt_ahead_report *out) {
  *out = (tern_pjrt_ahead_report){.argument_bytes = -1, .output_bytes = -1, .alias_bytes = -1, .temporary_bytes = -1, .peak_bytes = -1, .code_bytes = -1,
                                  .serialized_bytes = -1, .flops = -1, .bytes_accessed = -1, .transcendentals = -1, .optimal_seconds = -1};
  if (partitions < 1 || partitions > topology->n_devices)
    return tern_error_new(TERN_INVALID_ARGUMENT, "%d partitions on a topology of %d devices", partitions, topology->n_devices);
  int *ids = calloc((size_t)partitions, sizeof *ids);
  if (!ids) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for compile options");
  for (int i = 0; i < partitions; i++) ids[i] = i;
  char *options = NULL, *code = strdup(text);
  size_t size = 0;
  tern_status status = code ? tern_pjrt_compile_options(partitions, partitions > 1 ? ids : NULL, false, &options, &size)
                            : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
  if (!status) {
    const pjrt_api *api = topology->api;
    pjrt_program program = {.struct_size = sizeof program, .code = code, .code_size = strlen(code), .format = "mlir", .format_size = 4};
    TERN_PJRT_ARGS(Compile, compile, .topology = topology->handle, .program = &program, .compile_options = options, .compile_options_size = size);
    double start = tern_now();
    status = tern_pjrt_status(api, api->Compile(&compile), "PJRT_Compile");
    out->seconds = tern_now() - start;
    if (!status) {
      read_report(api, compile.executable, out);
      if (TERN_PJRT_HAS(api, Executable_Destroy)) {
        TERN_PJRT_ARGS(Executable_Destroy, destroy, .executable = compile.executable);
        tern_error_free(tern_pjrt_status(api, api->Executable_Destroy(&destroy), "PJRT_Executable_Destroy"));
      }
    }
  }
  free(ids);
  free(options);
  free(code);
  return status;
}
