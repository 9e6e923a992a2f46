/* Loops that the threads of a library share: their bodies are parts, as TVM's code generator makes them. */
#include <stdint.h>

typedef struct {
  void *sync_handle;
  int32_t num_task;
} Environment;

extern int (*__TVMBackendParallelLaunch)(int (*)(int, Environment *, void *), void *, int);

typedef struct {
  int32_t extent, failing;
  int32_t *counts; /* how often each iteration ran */
} Closure;

static int part(int number, Environment *environment, void *argument) {
  Closure *closure = argument;
  int32_t step = (closure->extent + environment->num_task - 1) / environment->num_task;
  for (int32_t i = number * step; i < (number + 1) * step && i < closure->extent; ++i) {
    if (i == closure->failing) return -1;
    __atomic_add_fetch(&closure->counts[i], 1, __ATOMIC_RELAXED);
  }
  return 0;
}

/* Runs `loops` loops of so many iterations one after the other; the number of those that failed. */
int count_iterations(int32_t extent, int32_t failing, int32_t *counts, int32_t loops) {
  Closure closure = {extent, failing, counts};
  int failures = 0;
  for (int32_t loop = 0; loop < loops; ++loop) failures += __TVMBackendParallelLaunch(part, &closure, 0) != 0;
  return failures;
}
