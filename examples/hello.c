/* hello: tern from C, without PyTorch. Makes two arrays, builds y = relu(x * w + b), runs it on the embedded engine (or on what the first argument names)
 * and prints it.  Build and run: make hello */
#include <stdio.h>
#include <stdlib.h>
#include <tern/tern.h>

static int failed(tern_status status) {
  if (!status) return 0;
  fprintf(stderr, "hello: %s: %s\n", tern_code_name(tern_error_code(status)), tern_error_message(status));
  tern_error_free(status);
  return 1;
}

int main(int argc, char **argv) {
  tern_chip *chip;
  if (failed(tern_chip_open(argc > 1 ? argv[1] : "", 0, &chip))) return 1;
  printf("chip: %s\n", tern_chip_describe(chip));

  /* The program: x is f32[2,3], w is f32[3,2], b is a number given at each run. */
  int64_t x_dims[] = {2, 3}, w_dims[] = {3, 2};
  tern_program *program;
  if (failed(tern_program_new(&program))) return 1;
  tern_value x = tern_parameter(program, TERN_F32, 2, x_dims);
  tern_value w = tern_parameter(program, TERN_F32, 2, w_dims);
  tern_value b = tern_scalar(program, TERN_F32);
  tern_value product = tern_dot(program, x, w, 0, NULL, NULL, 1, (int[]){1}, (int[]){0});
  tern_value y = tern_maximum(program, tern_add(program, product, b), tern_constant_float(program, TERN_F32, 0, NULL, 0.0));
  tern_result(program, y, -1);
  tern_compiled *compiled;
  if (failed(tern_program_finish(program)) || failed(tern_compile(chip, program, &compiled))) return 1;
  char *text = tern_program_text(program);
  printf("%s", text ? text : "");
  free(text);
  tern_program_free(program);

  float x_host[] = {1, 2, 3, -4, -5, -6}, w_host[] = {1, 0, 0, 1, 1, 1}, result[4];
  union { float f; uint64_t word; } bias = {.word = 0};
  bias.f = 0.5f;
  tern_array *inputs[2], *outputs[1];
  if (failed(tern_array_from_host(chip, TERN_F32, 2, x_dims, x_host, &inputs[0])) ||
      failed(tern_array_from_host(chip, TERN_F32, 2, w_dims, w_host, &inputs[1])) || failed(tern_run(compiled, inputs, &bias.word, outputs)) ||
      failed(tern_array_to_host(outputs[0], result, sizeof result)))
    return 1;
  printf("relu(x @ w + 0.5) = [[%g, %g], [%g, %g]]\n", result[0], result[1], result[2], result[3]);

  tern_array_free(inputs[0]);
  tern_array_free(inputs[1]);
  tern_array_free(outputs[0]);
  tern_compiled_free(compiled);
  tern_chip_close(chip);
  return 0;
}
