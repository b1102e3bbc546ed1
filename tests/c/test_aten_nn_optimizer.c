/* The fused optimizers against their formulas in double; that a new learning rate or step compiles nothing; what a gradient scaler does. */
#include <math.h>
#include "aten_nn_fixture.h"

enum { COUNT = 7, STEPS = 5, PARAMETERS = 2 };
static const int64_t sizes[2] = {COUNT, 1};

typedef struct model {
  double param[COUNT], avg[COUNT], avg_sq[COUNT], max[COUNT];
} model;

typedef struct adam {
  bool decoupled, amsgrad, maximizes;
  double beta1, beta2, decay, eps;
} adam;

static void step_in_double(model *m, const float *gradient, const adam *a, double lr, double step) {
  for (int i = 0; i < COUNT; i++) {
    double g = a->maximizes ? -(double)gradient[i] : (double)gradient[i];
    if (a->decoupled)
      m->param[i] *= 1 - lr * a->decay;
    else
      g += m->param[i] * a->decay;
    m->avg[i] = a->beta1 * m->avg[i] + (1 - a->beta1) * g;
    m->avg_sq[i] = a->beta2 * m->avg_sq[i] + (1 - a->beta2) * g * g;
    m->max[i] = fmax(m->max[i], m->avg_sq[i]);
    double denominator = sqrt(a->amsgrad ? m->max[i] : m->avg_sq[i]) / sqrt(1 - pow(a->beta2, step)) + a->eps;
    m->param[i] -= lr / (1 - pow(a->beta1, step)) * m->avg[i] / denominator;
  }
}

/* Two parameters of one list, so that a mix-up of places would show. */
typedef struct state {
  tensor param[PARAMETERS], grad[PARAMETERS], avg[PARAMETERS], avg_sq[PARAMETERS], max[PARAMETERS], step;
  tern_tensor lists[6][PARAMETERS];
} state;

static void make_state(state *s, model *models) {
  static const float zeros[COUNT] = {0}, no_steps = 0;
  s->step = from_floats(0, sizes, &no_steps);
  for (int k = 0; k < PARAMETERS; k++) {
    float start[COUNT];
    models[k] = (model){0};
    s->param[k] = noisy(2, sizes, start);
    for (int i = 0; i < COUNT; i++) models[k].param[i] = (double)start[i];
    s->grad[k] = from_floats(2, sizes, zeros);
    s->avg[k] = from_floats(2, sizes, zeros);
    s->avg_sq[k] = from_floats(2, sizes, zeros);
    s->max[k] = from_floats(2, sizes, zeros);
    const tensor *of_list[6] = {&s->param[k], &s->grad[k], &s->avg[k], &s->avg_sq[k], &s->max[k], &s->step};
    for (int l = 0; l < 6; l++) s->lists[l][k] = described(of_list[l]);
  }
}

static void drop_state(state *s) {
  for (int k = 0; k < PARAMETERS; k++) drop(s->param[k]), drop(s->grad[k]), drop(s->avg[k]), drop(s->avg_sq[k]), drop(s->max[k]);
  drop(s->step);
}

static void draw_gradients(state *s, float gradients[PARAMETERS][COUNT]) {
  for (int k = 0; k < PARAMETERS; k++) {
    for (int i = 0; i < COUNT; i++) gradients[k][i] = noise();
    must(tern_buffer_write(s->grad[k].buffer, TERN_F32, 2, sizes, gradients[k]));
  }
}

static void step_adam(state *s, const adam *a, tern_argument lr, tern_argument scale, tern_argument found) {
  MUST(a->decoupled ? "_fused_adamw_" : "_fused_adam_", list_of(s->lists[0], PARAMETERS), list_of(s->lists[1], PARAMETERS), list_of(s->lists[2], PARAMETERS),
       list_of(s->lists[3], PARAMETERS), list_of(s->lists[4], a->amsgrad ? PARAMETERS : 0), list_of(s->lists[5], PARAMETERS), lr, number(a->beta1),
       number(a->beta2), number(a->decay), number(a->eps), truth(a->amsgrad), truth(a->maximizes), scale, found);
}

static void adam_follows_its_formula(void **unused) {
  (void)unused;
  static const adam variants[] = {{false, false, false, 0.9, 0.999, 0, 1e-8},
                                  {true, false, false, 0.9, 0.999, 0.1, 1e-8},
                                  {false, true, false, 0.9, 0.99, 0.1, 1e-6},
                                  {true, true, true, 0.9, 0.99, 0.1, 1e-6},
                                  {false, false, true, 0.3, 0.4, 0, 1e-8}};
  for (size_t v = 0; v < TERN_COUNT(variants); v++) {
    state s;
    model models[PARAMETERS];
    make_state(&s, models);
    int64_t compiled_before = 0;
    for (int t = 1; t <= STEPS; t++) {
      float gradients[PARAMETERS][COUNT], step = (float)t;
      double lr = 0.1 / t;
      draw_gradients(&s, gradients);
      must(tern_buffer_write(s.step.buffer, TERN_F32, 0, sizes, &step));
      step_adam(&s, &variants[v], number(lr), none(), none());
      must(tern_device_synchronize(the_device()));
      for (int k = 0; k < PARAMETERS; k++) step_in_double(&models[k], gradients[k], &variants[v], lr, t);
      tern_eager_stats stats;
      tern_stats(&stats);
      if (t > 2) assert_int_equal(stats.compiled, compiled_before); /* neither the rate nor the step is in the key */
      compiled_before = stats.compiled;
    }
    for (int k = 0; k < PARAMETERS; k++) {
      expect_near(s.param[k], models[k].param, 2e-6);
      expect_near(s.avg[k], models[k].avg, 1e-6);
      expect_near(s.avg_sq[k], models[k].avg_sq, 1e-6);
      if (variants[v].amsgrad) expect_near(s.max[k], models[k].max, 1e-6);
    }
    drop_state(&s);
  }
}

/* grad_scale divides the gradient, also the one kept; found_inf == 1 leaves everything as it was. */
static void a_scaler_unscales_and_skips(void **unused) {
  (void)unused;
  static const adam plain = {false, false, false, 0.9, 0.999, 0, 1e-8};
  static const float four = 4, no = 0, yes = 1, first = 1;
  state s;
  model models[PARAMETERS];
  make_state(&s, models);
  float gradients[PARAMETERS][COUNT];
  tensor scale = from_floats(0, sizes, &four), fine = from_floats(0, sizes, &no), broken = from_floats(0, sizes, &yes),
         rate = from_floats(0, sizes, &(float){0.1f});
  must(tern_buffer_write(s.step.buffer, TERN_F32, 0, sizes, &first));
  draw_gradients(&s, gradients);
  step_adam(&s, &plain, of(&rate), of(&scale), of(&broken));
  for (int k = 0; k < PARAMETERS; k++) {
    double kept[COUNT];
    for (int i = 0; i < COUNT; i++) kept[i] = (double)gradients[k][i];
    expect_near(s.param[k], models[k].param, 0);
    expect_near(s.grad[k], kept, 0);
  }
  step_adam(&s, &plain, of(&rate), of(&scale), of(&fine));
  for (int k = 0; k < PARAMETERS; k++) {
    double kept[COUNT];
    for (int i = 0; i < COUNT; i++) kept[i] = (double)(gradients[k][i] /= 4);
    step_in_double(&models[k], gradients[k], &plain, 0.1, 1);
    expect_near(s.param[k], models[k].param, 2e-6);
    expect_near(s.grad[k], kept, 0);
  }
  drop(scale), drop(fine), drop(broken), drop(rate), drop_state(&s);
}

/* The first step fills the momentum buffer, whatever was in it. */
static void sgd_follows_its_formula(void **unused) {
  (void)unused;
  static const double momentum = 0.9, dampening = 0.2, decay = 0.1;
  for (int nesterov = 0; nesterov < 2; nesterov++) {
    state s;
    model models[PARAMETERS];
    make_state(&s, models);
    for (int k = 0; k < PARAMETERS; k++) fill(s.avg[k], NAN);
    for (int t = 0; t < STEPS; t++) {
      float gradients[PARAMETERS][COUNT];
      double lr = 0.1 / (t + 1);
      draw_gradients(&s, gradients);
      MUST("_fused_sgd_", list_of(s.lists[0], PARAMETERS), list_of(s.lists[1], PARAMETERS), list_of(s.lists[2], PARAMETERS), number(decay), number(momentum),
           number(lr), number(dampening), truth(nesterov), truth(false), truth(t == 0), none(), none());
      for (int k = 0; k < PARAMETERS; k++)
        for (int i = 0; i < COUNT; i++) {
          double g = (double)gradients[k][i] + decay * models[k].param[i];
          models[k].avg[i] = t == 0 ? g : momentum * models[k].avg[i] + (1 - dampening) * g;
          models[k].param[i] -= lr * (nesterov ? g + momentum * models[k].avg[i] : models[k].avg[i]);
        }
    }
    for (int k = 0; k < PARAMETERS; k++) {
      expect_near(s.param[k], models[k].param, 1e-6);
      expect_near(s.avg[k], models[k].avg, 1e-6);
    }
    drop_state(&s);
  }
}

/* A list that does not fit is PyTorch's to refuse, and no parameter has been touched. */
static void lists_are_checked_before_the_first_update(void **unused) {
  (void)unused;
  state s;
  model models[PARAMETERS];
  make_state(&s, models);
  s.lists[1][1].sizes = (const int64_t[]){1, COUNT};
  assert_int_equal(RUN("_fused_sgd_", list_of(s.lists[0], PARAMETERS), list_of(s.lists[1], PARAMETERS), list_of(NULL, 0), number(0), number(0), number(1),
                       number(0), truth(false), truth(false), truth(false), none(), none()),
                   TERN_FALL_BACK);
  for (int k = 0; k < PARAMETERS; k++) expect_near(s.param[k], models[k].param, 0);
  drop_state(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adam_follows_its_formula),
      cmocka_unit_test(a_scaler_unscales_and_skips),
      cmocka_unit_test(sgd_follows_its_formula),
      cmocka_unit_test(lists_are_checked_before_the_first_update),
  };
  return cmocka_run_group_tests(tests, NULL, release_last);
}
