/* The options of a compilation: a CompileOptionsProto of XLA, written by hand. Called by executable.c and ahead.c. */
#include "pjrt.h"

/* A liberty of XLA's that ops.def does not grant, switched off where the target takes options: keeping in f32 what the program rounds to f16 or bf16.
 * (xla_cpu_enable_fast_min_max, which would make XLA's CPU keep NaN in a maximum, is not among them: it makes a reduction 40 times slower.) */
static const char *const switched_off[] = {"xla_allow_excess_precision"};

typedef struct bytes {
  unsigned char *data;
  size_t n;
} bytes;

static void put_varint(bytes *b, uint64_t value) {
  for (; value > 0x7F; value >>= 7) b->data[b->n++] = (unsigned char)((value & 0x7F) | 0x80);
  b->data[b->n++] = (unsigned char)value;
}

static void put_number(bytes *b, int field, uint64_t value) {
  put_varint(b, (uint64_t)field << 3);
  put_varint(b, value);
}

static void put_bytes(bytes *b, int field, const void *data, size_t n) {
  put_varint(b, (uint64_t)field << 3 | 2);
  put_varint(b, n);
  memcpy(b->data + b->n, data, n);
  b->n += n;
}

/* DeviceAssignmentProto { replica_count (1) = 1, computation_count (2), computation_devices (3) { replica_device_ids (1), packed } per partition } */
static void put_assignment(bytes *b, int partitions, const int *ids, bytes *scratch) {
  scratch->n = 0;
  put_number(scratch, 1, 1);
  put_number(scratch, 2, (uint64_t)partitions);
  for (int i = 0; i < partitions; i++) {
    unsigned char id[10], one[16];
    bytes packed = {id, 0}, device = {one, 0};
    put_varint(&packed, (uint64_t)ids[i]);
    put_bytes(&device, 1, id, packed.n);
    put_bytes(scratch, 3, one, device.n);
  }
  put_bytes(b, 9, scratch->data, scratch->n);
}

/* executable_build_options (3) { num_replicas (4) = 1, num_partitions (5), use_spmd_partitioning (6), device_assignment (9), use_shardy_partitioner (19) }, then
 * env_option_overrides (7), a map. Empty options end XLA's process. */
tern_status tern_pjrt_compile_options(int partitions, const int *device_ids, bool overrides, char **out, size_t *size) {
  size_t room = 512 + 32 * (size_t)partitions;
  unsigned char *data = malloc(3 * room);
  if (!data) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for compile options");
  bytes all = {data, 0}, build = {data + room, 0}, scratch = {data + 2 * room, 0};
  put_number(&build, 4, 1);
  put_number(&build, 5, (uint64_t)partitions);
  if (partitions > 1) put_number(&build, 6, 1);
  if (device_ids) put_assignment(&build, partitions, device_ids, &scratch);
  if (partitions > 1) put_number(&build, 19, 1); /* without it libtpu reads the shardings of a module as none, and says nothing */
  put_bytes(&all, 3, build.data, build.n);
  for (size_t k = 0; overrides && k < TERN_COUNT(switched_off); k++) {
    /* A map entry: key (1), value (2) { bool_field (2) = false }. */
    scratch.n = 0;
    put_bytes(&scratch, 1, switched_off[k], strlen(switched_off[k]));
    put_bytes(&scratch, 2, (unsigned char[]){0x10, 0}, 2);
    put_bytes(&all, 7, scratch.data, scratch.n);
  }
  *out = (char *)data;
  *size = all.n;
  return NULL;
}
