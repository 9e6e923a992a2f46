/* Measures the clock of a core and its rate of fused multiply-adds; prints hertz and FLOP/s of float32.
   Needs VECTOR_BYTES: the width of a vector register. */
#include <stdio.h>
#include <time.h>

#define REPEATS 9
#define STEPS 20000000L
#define CHAINS 12 /* more than latency times ports of any core, and with two operands within 16 registers */

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Dependent decrements take one cycle each; the empty statement keeps the compiler from removing the loop. */
static double clock_rate(void) {
  double best = 0;
  for (int repeat = 0; repeat < REPEATS; ++repeat) {
    long left = STEPS;
    double started = seconds();
    do {
      __asm__ volatile("" : "+r"(left));
    } while (--left);
    double rate = STEPS / (seconds() - started);
    best = rate > best ? rate : best;
  }
  return best;
}

/* Chains that do not wait for each other keep every unit busy; their values stay near 1, so none is slow. */
static double multiply_add_rate(float factor, float summand, float *sink) {
  double best = 0;
  for (int repeat = 0; repeat < REPEATS; ++repeat) {
    vector chain[CHAINS], total = {0};
    vector factors = total + factor, summands = total + summand;
    for (int k = 0; k < CHAINS; ++k) chain[k] = summands;
    double started = seconds();
    for (long step = 0; step < STEPS / CHAINS; ++step) {
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; ++k) chain[k] = chain[k] * factors + summands;
    }
    double taken = seconds() - started;
    for (int k = 0; k < CHAINS; ++k) total += chain[k];
    *sink += total[0];
    double rate = 2.0 * (STEPS / CHAINS) * CHAINS * (VECTOR_BYTES / 4) / taken;
    best = rate > best ? rate : best;
  }
  return best;
}

int main(int count, char **words) {
  (void)words;
  float sink = 0; /* operands that depend on the arguments cannot be computed at compile time */
  double clock = clock_rate(), rate = multiply_add_rate(0.5f * count, 0.5f * count, &sink);
  printf("%.6g %.6g\n", clock, rate);
  return sink == 0.0f;
}
