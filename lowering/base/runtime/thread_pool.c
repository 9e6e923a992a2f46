/* The threads of a program: they share the iterations of kernels' parallel loops.

   A loop is cut into parts. Each thread begins with parts of its own, next to each other in memory, and then takes
   those that the others have not begun: a thread that comes late, or loses its core to another process, keeps nobody
   waiting but for the part that it is in. Waiting threads look again and again for a short while, then sleep.

   TVM's code calls a loop by the pointer __TVMBackendParallelLaunch, of which its objects hold weak, empty ones. */
#define _GNU_SOURCE
#include "eqfuse_runtime.h"

typedef struct {
  void *sync_handle;
  int32_t num_task;
} Environment; /* TVMParallelGroupEnv */

typedef int (*Loop)(int part, Environment *environment, void *closure);

#ifdef __linux__
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 1024
#define PARTS 16 /* for each thread: the last to end is late by a sixteenth of its share at most */
#define SPIN_NS 50000 /* as long as it takes to wake a thread on an idle core of a virtual machine */
#define TIME_SLICE_NS 4000000 /* how long a process keeps a core that it took from a helper */
#define FIRST_PAUSE_NS TIME_SLICE_NS
#define LONGEST_PAUSE_NS (64 * TIME_SLICE_NS) /* trying a helper that has no core costs a slice or two */
#define POLLS 32 /* between two looks at the clock */

/* The gate: whether helpers may begin with the current loop, how many more may, and how many are at it. */
#define OPEN 0x80000000u
#define WAITED_FOR 0x40000000u /* the caller sleeps until the last helper leaves */
#define ADMIT 0x00010000u
#define INSIDE 0x0000ffffu

#define CACHE_LINE 64

/* What helpers read of a loop, in the line of memory that tells them of it. */
static struct {
  uint32_t number; /* of the loop; helpers sleep while it stays the same */
  uint32_t gate;
  int threads; /* that it has shares for */
  Loop loop;
  void *closure;
  Environment environment;
} __attribute__((aligned(CACHE_LINE))) job;

/* Parts that nobody has begun: the first in the lower half, in the upper the one behind the last. */
typedef struct {
  uint64_t begin_end;
} __attribute__((aligned(CACHE_LINE))) Share;

static Share shares[MOST_THREADS];

static struct {
  uint32_t sleepers; /* helpers */
  uint32_t ending;
  uint32_t claimed __attribute__((aligned(CACHE_LINE))); /* by the thread whose loop this is */
  uint32_t failed;
  char message[512]; /* of the part that failed first */
  int helpers;
  int admitted; /* helpers at most, for the time being */
  int64_t gain; /* nanoseconds that the last helper saved lately, less those that it cost */
  int64_t saved; /* as much of it as no single mishap can cost */
  int64_t pause, paused_until; /* nanoseconds; 0 as long as nothing was seen of other processes */
  pthread_t handles[MOST_THREADS];
} pool;

static __thread int wanted = 1; /* threads for the loops of the calling thread */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_SEQ_CST)

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t look_at(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int64_t now(void) { return look_at(CLOCK_MONOTONIC); }

static void sleep_while(uint32_t *word, uint32_t value) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL); }

static void wake(uint32_t *word, int sleepers) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers); }

/* Whether the condition came true within a short while. */
#define SPIN_UNTIL(condition)                                                       \
  ({                                                                                \
    int64_t limit = now() + SPIN_NS;                                                \
    int is_true;                                                                    \
    do {                                                                            \
      for (int poll = 0; !(is_true = (condition)) && poll < POLLS; ++poll) relax(); \
    } while (!is_true && now() < limit);                                            \
    is_true;                                                                        \
  })

/* Takes a part of a share: its owner the first, others the last. The number of the part, or -1. */
static int take_part(Share *share, int is_own) {
  uint64_t left = LOAD(share->begin_end), rest;
  uint32_t begin, end;
  do {
    begin = (uint32_t)left, end = (uint32_t)(left >> 32);
    if (begin >= end) return -1;
    rest = is_own ? left + 1 : left - (1ull << 32);
  } while (!__atomic_compare_exchange_n(&share->begin_end, &left, rest, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return (int)(is_own ? begin : end - 1);
}

static void run_part(int part) {
  if (job.loop(part, &job.environment, job.closure) == 0) return;
  if (__atomic_exchange_n(&pool.failed, 1, __ATOMIC_SEQ_CST) == 0)
    snprintf(pool.message, sizeof pool.message, "%s", eqfuse_message());
}

/* Runs parts until every one has been begun by somebody; the number of those that this thread ran. */
static int work(int thread) {
  int threads = job.threads, part, parts = 0;
  for (int other = 0; other < threads; ++other) {
    Share *share = &shares[(thread + other) % threads];
    while ((part = take_part(share, other == 0)) >= 0) run_part(part), ++parts;
  }
  return parts;
}

static int enter(void) {
  uint32_t gate = LOAD(job.gate);
  do {
    if (!(gate & OPEN) || !(gate & ~(OPEN | WAITED_FOR | INSIDE))) return 0;
  } while (!__atomic_compare_exchange_n(&job.gate, &gate, gate - ADMIT + 1, 1, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return 1;
}

static void leave(void) {
  uint32_t before = __atomic_fetch_sub(&job.gate, 1, __ATOMIC_SEQ_CST);
  if ((before & WAITED_FOR) && (before & INSIDE) == 1) wake(&job.gate, 1);
}

static void *help(void *argument) {
  int thread = (int)(intptr_t)argument;
  uint32_t seen = 0;
  for (;;) {
    if (!SPIN_UNTIL(LOAD(job.number) != seen)) {
      __atomic_add_fetch(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
      while (LOAD(job.number) == seen) sleep_while(&job.number, seen);
      __atomic_sub_fetch(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
    }
    seen = LOAD(job.number);
    if (LOAD(pool.ending)) return NULL;
    if (enter()) work(thread), leave();
  }
}

/* Starts helpers until `number` of them run, or the system refuses. Signals are for the threads of the caller's own. */
static void start_helpers(int number) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.helpers < number) {
    void *thread = (void *)(intptr_t)(pool.helpers + 1);
    if (pthread_create(&pool.handles[pool.helpers], NULL, help, thread)) break;
    pthread_setname_np(pool.handles[pool.helpers++], "eqfuse-helper"); /* for ps and top */
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Waits until no helper is at the loop any more. Sleeping gives the core to a helper that has none. */
static void wait_for_helpers(void) {
  if (!(__atomic_and_fetch(&job.gate, INSIDE, __ATOMIC_SEQ_CST))) return;
  if (SPIN_UNTIL(!(LOAD(job.gate) & INSIDE))) return;
  uint32_t gate = __atomic_or_fetch(&job.gate, WAITED_FOR, __ATOMIC_SEQ_CST);
  while (gate & INSIDE) sleep_while(&job.gate, gate), gate = LOAD(job.gate);
}

/* The helpers for a loop: fewer for a while after they cost more time than they saved. */
static int admit(int helpers) {
  if (helpers > pool.admitted && now() >= pool.paused_until) {
    pool.admitted += 1;
    pool.gain = 0;
    pool.paused_until = now() + pool.pause;
  }
  return helpers < pool.admitted ? helpers : pool.admitted;
}

/* The time that the caller has spent on its parts. If another process takes the caller's core, its parts take longer
   and the helper runs most of them, which alone would not have happened: so only time on a core counts. That clock takes
   twenty times as long to read, and is left alone as long as there is no such process. */
static int64_t look_at_work(void) { return look_at(pool.pause ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC); }

/* Takes note of a loop that has taken so long: its caller worked on `parts` of all parts for a part of that time. Another
   process that keeps a core busy stops a helper in the midst of a part. One helper fewer leaves a core to that process. */
static void judge_helpers(int64_t worked, int64_t taken, int parts) {
  if (!pool.pause && parts < PARTS / 2 && taken > TIME_SLICE_NS / 4)
    pool.pause = FIRST_PAUSE_NS / 8; /* another process was on the caller's core */
  int64_t alone = parts ? worked * job.environment.num_task / parts : taken, most = taken * job.threads;
  pool.gain += ((alone < most ? alone : most) - taken) / (job.threads - 1);
  if (pool.gain > TIME_SLICE_NS / 2) {
    pool.saved += pool.gain - TIME_SLICE_NS / 2;
    pool.gain = TIME_SLICE_NS / 2;
  }
  if (pool.saved > 16 * TIME_SLICE_NS) {
    pool.saved = 0;
    pool.pause = pool.pause > FIRST_PAUSE_NS ? pool.pause / 2 : 0;
  }
  if (pool.gain > -TIME_SLICE_NS / 2) return;
  pool.pause = pool.pause ? 8 * pool.pause : FIRST_PAUSE_NS;
  if (pool.pause > LONGEST_PAUSE_NS) pool.pause = LONGEST_PAUSE_NS;
  pool.paused_until = now() + pool.pause;
  pool.admitted = job.threads - 2;
  pool.gain = pool.saved = 0;
}

static int launch(Loop loop, void *closure, int tasks) {
  (void)tasks; /* 0: as many as there are threads */
  int helpers = wanted - 1;
  if (helpers > 0 && __atomic_exchange_n(&pool.claimed, 1, __ATOMIC_SEQ_CST) == 0) {
    if (pool.helpers < helpers) start_helpers(helpers);
    helpers = admit(helpers < pool.helpers ? helpers : pool.helpers);
    if (helpers > 0) {
      pool.failed = 0;
      for (uint32_t i = 0; i <= (uint32_t)helpers; ++i)
        shares[i].begin_end = (uint64_t)(PARTS * (i + 1)) << 32 | PARTS * i;
      job.threads = helpers + 1, job.loop = loop, job.closure = closure;
      job.environment.num_task = PARTS * job.threads;
      int64_t begun = now(); /* a helper that is woken may take this core at once */
      __atomic_store_n(&job.gate, OPEN | ADMIT * (uint32_t)helpers, __ATOMIC_RELEASE);
      __atomic_add_fetch(&job.number, 1, __ATOMIC_SEQ_CST);
      if (LOAD(pool.sleepers)) wake(&job.number, helpers);
      int64_t worked = -look_at_work();
      int parts = work(0);
      worked += look_at_work();
      wait_for_helpers();
      judge_helpers(worked, now() - begun, parts);
      int failed = (int)pool.failed;
      if (failed) eqfuse_fail("%s", pool.message);
      STORE(pool.claimed, 0);
      return failed ? -1 : 0;
    }
    STORE(pool.claimed, 0);
  }
  Environment alone = {NULL, 1}; /* also if the helpers are at a loop of another thread's */
  return loop(0, &alone, closure);
}

__attribute__((visibility("hidden"))) int (*__TVMBackendParallelLaunch)(Loop, void *, int) = launch;

void eqfuse_use_threads(int threads) {
  cpu_set_t cores;
  wanted = threads;
  if (threads < 2) return;
  int most = MOST_THREADS;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < most) most = CPU_COUNT(&cores);
  wanted = threads < most ? threads : most;
}

/* A fork has no threads but the one that forked, whatever the others were at. */
static void forget_helpers(void) { pool.helpers = 0, pool.sleepers = 0, pool.claimed = 0, job.gate = 0; }

static __attribute__((constructor)) void watch_forks(void) { pthread_atfork(NULL, NULL, forget_helpers); }

/* Before the library is unloaded, its threads end. */
static __attribute__((destructor)) void end_helpers(void) {
  if (!pool.helpers) return;
  STORE(pool.ending, 1);
  __atomic_add_fetch(&job.number, 1, __ATOMIC_SEQ_CST);
  wake(&job.number, MOST_THREADS);
  while (pool.helpers > 0) pthread_join(pool.handles[--pool.helpers], NULL);
}
#else
static int launch(Loop loop, void *closure, int tasks) {
  Environment alone = {NULL, 1};
  (void)tasks;
  return loop(0, &alone, closure);
}

EQFUSE_SERVICE int (*__TVMBackendParallelLaunch)(Loop, void *, int) = launch;

void eqfuse_use_threads(int threads) { (void)threads; }
#endif
