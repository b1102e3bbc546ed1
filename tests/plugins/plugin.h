/* A small PJRT plug-in that works as far as it goes: one device whose memory is the host's, a compiler that only counts outputs, an execute that gives
 * as many empty arrays. Each file beside this one includes it and breaks it in one way, in break_it(). Used by tests/c/test_pjrt_broken.c. */
#ifndef TERN_TEST_PLUGIN_H
#define TERN_TEST_PLUGIN_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../src/pjrt/api.h"

static void break_it(pjrt_api *api);

struct pjrt_error { int code; char message[256]; };
struct pjrt_client { int unused; };
struct pjrt_device { int unused; };
struct pjrt_event { int code; };
struct pjrt_loaded_executable { int n_outputs; };
struct pjrt_buffer { size_t size; bool deleted; char bytes[]; };

__attribute__((unused)) static pjrt_error *error_new(int code, const char *message) {
  pjrt_error *error = malloc(sizeof *error);
  error->code = code;
  snprintf(error->message, sizeof error->message, "%s", message);
  return error;
}

static void error_destroy(struct pjrt_Error_Destroy *a) { free(a->error); }
static void error_message(struct pjrt_Error_Message *a) { a->message = a->error->message, a->message_size = strlen(a->error->message); }
static pjrt_error *error_code(struct pjrt_Error_GetCode *a) { return a->code = a->error->code, NULL; }
static pjrt_error *initialize(struct pjrt_Plugin_Initialize *a) { return (void)a, NULL; }

static pjrt_event *event_new(int code) {
  pjrt_event *event = malloc(sizeof *event);
  event->code = code;
  return event;
}
static pjrt_error *event_destroy(struct pjrt_Event_Destroy *a) { return free(a->event), NULL; }
static pjrt_error *event_await(struct pjrt_Event_Await *a) { return a->event->code ? error_new(a->event->code, "the work behind this event failed") : NULL; }

static pjrt_client the_client;
static pjrt_device the_device, *const devices[] = {&the_device};
static pjrt_error *client_create(struct pjrt_Client_Create *a) { return a->client = &the_client, NULL; }
static pjrt_error *client_destroy(struct pjrt_Client_Destroy *a) { return (void)a, NULL; }
static pjrt_error *platform_name(struct pjrt_Client_PlatformName *a) { return a->platform_name = "broken", a->platform_name_size = 6, NULL; }
static pjrt_error *addressable_devices(struct pjrt_Client_AddressableDevices *a) {
  a->addressable_devices = devices, a->num_addressable_devices = 1;
  return NULL;
}

static pjrt_buffer *buffer_new(size_t size) {
  pjrt_buffer *buffer = calloc(1, sizeof *buffer + size);
  buffer->size = size;
  return buffer;
}
static pjrt_error *buffer_from_host(struct pjrt_Client_BufferFromHostBuffer *a) {
  static const size_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16};
  size_t size = sizes[a->type];
  for (size_t d = 0; d < a->num_dims; d++) size *= (size_t)a->dims[d];
  a->buffer = buffer_new(size);
  memcpy(a->buffer->bytes, a->data, size);
  a->done_with_host_buffer = event_new(0);
  return NULL;
}
static pjrt_error *buffer_destroy(struct pjrt_Buffer_Destroy *a) { return free(a->buffer), NULL; }
static pjrt_error *buffer_is_deleted(struct pjrt_Buffer_IsDeleted *a) { return a->is_deleted = a->buffer->deleted, NULL; }
static pjrt_error *buffer_to_host(struct pjrt_Buffer_ToHostBuffer *a) {
  memcpy(a->dst, a->src->bytes, a->src->size < a->dst_size ? a->src->size : a->dst_size);
  a->event = event_new(0);
  return NULL;
}

/* As many outputs as the text returns values. */
static pjrt_error *compile(struct pjrt_Client_Compile *a) {
  const char *end = strstr(a->program->code, "\"func.return\"(");
  a->executable = calloc(1, sizeof *a->executable);
  for (; end && *end != ')'; end++) a->executable->n_outputs += *end == '%';
  return NULL;
}
static pjrt_error *executable_destroy(struct pjrt_LoadedExecutable_Destroy *a) { return free(a->executable), NULL; }
static pjrt_error *execute(struct pjrt_LoadedExecutable_Execute *a) {
  for (int i = 0; i < a->executable->n_outputs; i++) a->output_lists[0][i] = buffer_new(0);
  if (a->device_complete_events) a->device_complete_events[0] = event_new(0);
  return NULL;
}

__attribute__((visibility("default"))) const pjrt_api *GetPjrtApi(void);
const pjrt_api *GetPjrtApi(void) {
  static pjrt_api api = {
      .struct_size = sizeof(pjrt_api),
      .version = {.struct_size = sizeof(pjrt_api_version), .major_version = TERN_PJRT_MAJOR, .minor_version = TERN_PJRT_MINOR},
      .Error_Destroy = error_destroy, .Error_Message = error_message, .Error_GetCode = error_code,
      .Plugin_Initialize = initialize,
      .Event_Destroy = event_destroy, .Event_Await = event_await,
      .Client_Create = client_create, .Client_Destroy = client_destroy, .Client_PlatformName = platform_name,
      .Client_AddressableDevices = addressable_devices, .Client_Compile = compile, .Client_BufferFromHostBuffer = buffer_from_host,
      .LoadedExecutable_Destroy = executable_destroy, .LoadedExecutable_Execute = execute,
      .Buffer_Destroy = buffer_destroy, .Buffer_IsDeleted = buffer_is_deleted, .Buffer_ToHostBuffer = buffer_to_host,
  };
  break_it(&api);
  return &api;
}
#endif
