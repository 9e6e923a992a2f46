/* The services that compiled kernels call. Their objects hold weak, empty pointers of these names. */
#include "eqfuse_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct {
    void *synchronisation;
    int32_t tasks;
} parallel_group;

typedef int (*parallel_body)(int task, parallel_group *group, void *closure);

/* Runs the body once per thread. Without OpenMP that is once: a body splits its work by group->tasks. */
static int parallel_launch(parallel_body body, void *closure, int tasks) {
#ifdef _OPENMP
    int status = 0;
    int threads = tasks > 0 && tasks < omp_get_max_threads() ? tasks : omp_get_max_threads();
#pragma omp parallel num_threads(threads) reduction(| : status)
    {
        parallel_group group = {NULL, omp_get_num_threads()};
        status |= body(omp_get_thread_num(), &group, closure);
    }
    return status;
#else
    (void)tasks;
    parallel_group group = {NULL, 1};
    return body(0, &group, closure);
#endif
}

/* Workspaces are taken and given back in inner loops, and glibc before 2.38 never reuses what aligned_alloc gave out in
 * small pieces. So each thread keeps its blocks, and hands out the first free one that is large enough. */
typedef struct {
    void *memory;
    uint64_t bytes;
    int taken;
} block;

enum { BLOCKS = 64 };
static _Thread_local block blocks[BLOCKS];

static void *take(block *chosen, uint64_t bytes) {
    if (chosen->bytes < bytes) {
        free(chosen->memory);
        chosen->bytes = (bytes + EQFUSE_ALIGNMENT - 1) / EQFUSE_ALIGNMENT * EQFUSE_ALIGNMENT;
        chosen->memory = aligned_alloc(EQFUSE_ALIGNMENT, chosen->bytes);
        if (!chosen->memory) chosen->bytes = 0;
    }
    chosen->taken = chosen->memory != NULL;
    return chosen->memory;
}

static void *allocate_workspace(int device, int index, uint64_t bytes, int type_code, int type_bits) {
    (void)device, (void)index, (void)type_code, (void)type_bits;
    block *spare = NULL;
    for (block *each = blocks; each < blocks + BLOCKS; each++) {
        if (each->taken) continue;
        if (each->bytes >= bytes && each->bytes) return take(each, bytes);
        if (!spare) spare = each;
    }
    return spare ? take(spare, bytes ? bytes : 1) : NULL;
}

static int free_workspace(int device, int index, void *workspace) {
    (void)device, (void)index;
    for (block *each = blocks; each < blocks + BLOCKS; each++)
        if (each->taken && each->memory == workspace) return each->taken = 0;
    return -1;
}

int (*__TVMBackendParallelLaunch)(parallel_body, void *, int) = parallel_launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;

/* A kernel's complaint about its arguments, before it returns something else than 0. */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
    fprintf(stderr, "error: %s: ", kind);
    for (int32_t i = 0; i < count; i++)
        if (parts[i]) fputs(parts[i], stderr);
    fputc('\n', stderr);
}
