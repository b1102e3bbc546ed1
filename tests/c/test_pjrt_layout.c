/* src/pjrt/api.h against the interface's own header (from the package xla-cpu-pjrt): every offset and size that tern relies on.
 * Built with -DTERN_PJRT_C_API_H="<path of pjrt_c_api.h>"; without it the test is skipped and says why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/pjrt/api.h"

#ifdef TERN_PJRT_C_API_H
#include TERN_PJRT_C_API_H

#define SAME_FIELD(ours, our_field, theirs, their_field)                     \
  assert_int_equal(offsetof(ours, our_field), offsetof(theirs, their_field)); \
  assert_int_equal(sizeof(((ours *)0)->our_field), sizeof(((theirs *)0)->their_field))
#define FIELD(name, field) SAME_FIELD(pjrt_##name, field, PJRT_##name##_Args, field);
#define SIZE(name) assert_int_equal(pjrt_##name##_size, PJRT_##name##_Args_STRUCT_SIZE);

static void test_arguments(void **state) {
  (void)state;
  SIZE(Error_Destroy) FIELD(Error_Destroy, struct_size) FIELD(Error_Destroy, extension_start) FIELD(Error_Destroy, error)
  SIZE(Error_Message) FIELD(Error_Message, error) FIELD(Error_Message, message) FIELD(Error_Message, message_size)
  SIZE(Error_GetCode) FIELD(Error_GetCode, error) FIELD(Error_GetCode, code)
  SIZE(Plugin_Initialize)
  SIZE(Plugin_Attributes) FIELD(Plugin_Attributes, attributes) FIELD(Plugin_Attributes, num_attributes)
  SIZE(Event_Destroy) FIELD(Event_Destroy, event)
  SIZE(Event_Await) FIELD(Event_Await, event)
  SIZE(Client_Create) FIELD(Client_Create, create_options) FIELD(Client_Create, num_options) FIELD(Client_Create, client)
  FIELD(Client_Create, kv_get_callback) FIELD(Client_Create, kv_get_user_arg) FIELD(Client_Create, kv_put_callback)
  FIELD(Client_Create, kv_put_user_arg) FIELD(Client_Create, kv_try_get_callback) FIELD(Client_Create, kv_try_get_user_arg)
  SIZE(Client_Destroy) FIELD(Client_Destroy, client)
  SIZE(Client_PlatformName) FIELD(Client_PlatformName, client) FIELD(Client_PlatformName, platform_name) FIELD(Client_PlatformName, platform_name_size)
  SIZE(Client_PlatformVersion) FIELD(Client_PlatformVersion, client) FIELD(Client_PlatformVersion, platform_version)
  FIELD(Client_PlatformVersion, platform_version_size)
  SIZE(Client_AddressableDevices) FIELD(Client_AddressableDevices, client) FIELD(Client_AddressableDevices, addressable_devices)
  FIELD(Client_AddressableDevices, num_addressable_devices)
  SIZE(Client_Compile) FIELD(Client_Compile, client) FIELD(Client_Compile, program) FIELD(Client_Compile, compile_options)
  FIELD(Client_Compile, compile_options_size) FIELD(Client_Compile, executable)
  SIZE(Client_BufferFromHostBuffer) FIELD(Client_BufferFromHostBuffer, client) FIELD(Client_BufferFromHostBuffer, data)
  FIELD(Client_BufferFromHostBuffer, type) FIELD(Client_BufferFromHostBuffer, dims) FIELD(Client_BufferFromHostBuffer, num_dims)
  FIELD(Client_BufferFromHostBuffer, byte_strides) FIELD(Client_BufferFromHostBuffer, num_byte_strides)
  FIELD(Client_BufferFromHostBuffer, host_buffer_semantics) FIELD(Client_BufferFromHostBuffer, device) FIELD(Client_BufferFromHostBuffer, memory)
  FIELD(Client_BufferFromHostBuffer, device_layout) FIELD(Client_BufferFromHostBuffer, done_with_host_buffer) FIELD(Client_BufferFromHostBuffer, buffer)
  SIZE(Client_CreateUninitializedBuffer) FIELD(Client_CreateUninitializedBuffer, client) FIELD(Client_CreateUninitializedBuffer, shape_dims)
  FIELD(Client_CreateUninitializedBuffer, shape_num_dims) FIELD(Client_CreateUninitializedBuffer, shape_element_type)
  FIELD(Client_CreateUninitializedBuffer, shape_layout) FIELD(Client_CreateUninitializedBuffer, device) FIELD(Client_CreateUninitializedBuffer, memory)
  FIELD(Client_CreateUninitializedBuffer, buffer)
  SIZE(Device_GetDescription) FIELD(Device_GetDescription, device) FIELD(Device_GetDescription, device_description)
  SIZE(DeviceDescription_Id) FIELD(DeviceDescription_Id, device_description) FIELD(DeviceDescription_Id, id)
  SIZE(DeviceDescription_Kind) FIELD(DeviceDescription_Kind, device_description) FIELD(DeviceDescription_Kind, device_kind)
  FIELD(DeviceDescription_Kind, device_kind_size)
  SIZE(Device_MemoryStats) FIELD(Device_MemoryStats, device) FIELD(Device_MemoryStats, bytes_in_use) FIELD(Device_MemoryStats, peak_bytes_in_use)
  FIELD(Device_MemoryStats, peak_bytes_in_use_is_set) FIELD(Device_MemoryStats, bytes_limit) FIELD(Device_MemoryStats, bytes_limit_is_set)
  FIELD(Device_MemoryStats, bytes_reserved) FIELD(Device_MemoryStats, bytes_reserved_is_set) FIELD(Device_MemoryStats, pool_bytes)
  FIELD(Device_MemoryStats, pool_bytes_is_set) FIELD(Device_MemoryStats, peak_pool_bytes_is_set)
  SIZE(Executable_Destroy) FIELD(Executable_Destroy, executable)
  SIZE(Executable_NumOutputs) FIELD(Executable_NumOutputs, executable) FIELD(Executable_NumOutputs, num_outputs)
  SIZE(LoadedExecutable_Destroy) FIELD(LoadedExecutable_Destroy, executable)
  SIZE(LoadedExecutable_GetExecutable) FIELD(LoadedExecutable_GetExecutable, loaded_executable) FIELD(LoadedExecutable_GetExecutable, executable)
  SIZE(LoadedExecutable_Execute) FIELD(LoadedExecutable_Execute, executable) FIELD(LoadedExecutable_Execute, options)
  FIELD(LoadedExecutable_Execute, argument_lists) FIELD(LoadedExecutable_Execute, num_devices) FIELD(LoadedExecutable_Execute, num_args)
  FIELD(LoadedExecutable_Execute, output_lists) FIELD(LoadedExecutable_Execute, device_complete_events) FIELD(LoadedExecutable_Execute, execute_device)
  SIZE(Buffer_Destroy) FIELD(Buffer_Destroy, buffer)
  SIZE(Buffer_IsDeleted) FIELD(Buffer_IsDeleted, buffer) FIELD(Buffer_IsDeleted, is_deleted)
  SIZE(Buffer_ToHostBuffer) FIELD(Buffer_ToHostBuffer, src) FIELD(Buffer_ToHostBuffer, host_layout) FIELD(Buffer_ToHostBuffer, dst)
  FIELD(Buffer_ToHostBuffer, dst_size) FIELD(Buffer_ToHostBuffer, event)
  SIZE(Executable_GetCostAnalysis) FIELD(Executable_GetCostAnalysis, num_properties) FIELD(Executable_GetCostAnalysis, properties)
  SIZE(Executable_GetCompiledMemoryStats) FIELD(Executable_GetCompiledMemoryStats, argument_size_in_bytes)
  FIELD(Executable_GetCompiledMemoryStats, generated_code_size_in_bytes) FIELD(Executable_GetCompiledMemoryStats, output_size_in_bytes)
  FIELD(Executable_GetCompiledMemoryStats, alias_size_in_bytes) FIELD(Executable_GetCompiledMemoryStats, temp_size_in_bytes)
  FIELD(Executable_GetCompiledMemoryStats, host_temp_size_in_bytes) FIELD(Executable_GetCompiledMemoryStats, peak_memory_in_bytes)
  SIZE(Executable_Serialize) FIELD(Executable_Serialize, serialized_bytes) FIELD(Executable_Serialize, serialized_bytes_size)
  FIELD(Executable_Serialize, serialized_executable) FIELD(Executable_Serialize, serialized_executable_deleter)
  SIZE(Executable_DeserializeAndLoad) FIELD(Executable_DeserializeAndLoad, client) FIELD(Executable_DeserializeAndLoad, serialized_executable)
  FIELD(Executable_DeserializeAndLoad, serialized_executable_size) FIELD(Executable_DeserializeAndLoad, loaded_executable)
  FIELD(Executable_DeserializeAndLoad, overridden_serialized_compile_options_size)
  SIZE(TopologyDescription_Create) FIELD(TopologyDescription_Create, topology_name) FIELD(TopologyDescription_Create, create_options)
  FIELD(TopologyDescription_Create, num_options) FIELD(TopologyDescription_Create, topology)
  SIZE(TopologyDescription_Destroy) FIELD(TopologyDescription_Destroy, topology)
  SIZE(TopologyDescription_PlatformVersion) FIELD(TopologyDescription_PlatformVersion, platform_version)
  SIZE(TopologyDescription_GetDeviceDescriptions) FIELD(TopologyDescription_GetDeviceDescriptions, descriptions)
  FIELD(TopologyDescription_GetDeviceDescriptions, num_descriptions)
  SIZE(TopologyDescription_Attributes) FIELD(TopologyDescription_Attributes, attributes) FIELD(TopologyDescription_Attributes, num_attributes)
  SIZE(Compile) FIELD(Compile, topology) FIELD(Compile, program) FIELD(Compile, compile_options) FIELD(Compile, compile_options_size)
  FIELD(Compile, client) FIELD(Compile, executable)
}

static void test_values(void **state) {
  (void)state;
#define SAME(ours, theirs, field) SAME_FIELD(ours, field, theirs, field);
  SAME(pjrt_named_value, PJRT_NamedValue, name) SAME(pjrt_named_value, PJRT_NamedValue, name_size) SAME(pjrt_named_value, PJRT_NamedValue, type)
  SAME(pjrt_named_value, PJRT_NamedValue, int64_value) SAME(pjrt_named_value, PJRT_NamedValue, value_size)
  assert_int_equal(sizeof(pjrt_named_value), PJRT_NamedValue_STRUCT_SIZE);
  SAME(pjrt_layout_tiled, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major) SAME(pjrt_layout_tiled, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major_size)
  SAME(pjrt_layout_tiled, PJRT_Buffer_MemoryLayout_Tiled, num_tiles)
  assert_int_equal(sizeof(pjrt_layout_tiled), PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE);
  SAME(pjrt_layout, PJRT_Buffer_MemoryLayout, tiled) SAME(pjrt_layout, PJRT_Buffer_MemoryLayout, type)
  assert_int_equal(sizeof(pjrt_layout), sizeof(PJRT_Buffer_MemoryLayout));
  SAME(pjrt_program, PJRT_Program, code) SAME(pjrt_program, PJRT_Program, code_size) SAME(pjrt_program, PJRT_Program, format)
  SAME(pjrt_program, PJRT_Program, format_size)
  assert_int_equal(sizeof(pjrt_program), PJRT_Program_STRUCT_SIZE);
  SAME(pjrt_execute_options, PJRT_ExecuteOptions, launch_id) SAME(pjrt_execute_options, PJRT_ExecuteOptions, non_donatable_input_indices)
  SAME(pjrt_execute_options, PJRT_ExecuteOptions, num_non_donatable_input_indices) SAME(pjrt_execute_options, PJRT_ExecuteOptions, call_location)
  SAME(pjrt_execute_options, PJRT_ExecuteOptions, incarnation_ids)
  assert_int_equal(sizeof(pjrt_execute_options), PJRT_ExecuteOptions_STRUCT_SIZE);
  SAME(pjrt_extension, PJRT_Extension_Base, type) SAME(pjrt_extension, PJRT_Extension_Base, next)

  assert_int_equal(PJRT_CODE_RESOURCE_EXHAUSTED, PJRT_Error_Code_RESOURCE_EXHAUSTED);
  assert_int_equal(PJRT_CODE_UNIMPLEMENTED, PJRT_Error_Code_UNIMPLEMENTED);
  assert_int_equal(PJRT_CODE_INTERNAL, PJRT_Error_Code_INTERNAL);
  assert_int_equal(PJRT_VALUE_STRING, PJRT_NamedValue_kString);
  assert_int_equal(PJRT_VALUE_INT64, PJRT_NamedValue_kInt64);
  assert_int_equal(PJRT_VALUE_INT64_LIST, PJRT_NamedValue_kInt64List);
  assert_int_equal(PJRT_VALUE_BOOL, PJRT_NamedValue_kBool);
  assert_int_equal(PJRT_TYPE_PRED, PJRT_Buffer_Type_PRED);
  assert_int_equal(PJRT_TYPE_S64, PJRT_Buffer_Type_S64);
  assert_int_equal(PJRT_TYPE_U64, PJRT_Buffer_Type_U64);
  assert_int_equal(PJRT_TYPE_F64, PJRT_Buffer_Type_F64);
  assert_int_equal(PJRT_TYPE_BF16, PJRT_Buffer_Type_BF16);
  assert_int_equal(PJRT_TYPE_C128, PJRT_Buffer_Type_C128);
  assert_int_equal(PJRT_HOST_BUFFER_IMMUTABLE_ONLY_DURING_CALL, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  assert_int_equal(PJRT_LAYOUT_TILED, PJRT_Buffer_MemoryLayout_Type_Tiled);
  assert_int_equal(PJRT_LAYOUT_STRIDES, PJRT_Buffer_MemoryLayout_Type_Strides);
}

static void test_table(void **state) {
  (void)state;
  SAME_FIELD(pjrt_api, version.major_version, PJRT_Api, pjrt_api_version.major_version);
  SAME_FIELD(pjrt_api, version.minor_version, PJRT_Api, pjrt_api_version.minor_version);
#define TERN_PJRT_ENTRY(name) SAME_FIELD(pjrt_api, name, PJRT_Api, PJRT_##name);
#define TERN_PJRT_OPTIONAL TERN_PJRT_ENTRY
#define TERN_PJRT_REPORT TERN_PJRT_ENTRY
#define TERN_PJRT_UNUSED TERN_PJRT_ENTRY
#include "../../src/pjrt/entries.def"
  assert_int_equal(TERN_PJRT_MAJOR, PJRT_API_MAJOR);
  if (TERN_PJRT_MINOR == PJRT_API_MINOR) assert_int_equal(sizeof(pjrt_api), PJRT_Api_STRUCT_SIZE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arguments), cmocka_unit_test(test_values), cmocka_unit_test(test_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void test_skipped(void **state) {
  (void)state;
  print_message("skipped: built without pjrt_c_api.h (pip install xla-cpu-pjrt, then configure again)\n");
  skip();
}
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_skipped)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
