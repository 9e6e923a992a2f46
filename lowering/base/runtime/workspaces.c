/* Memory that kernels take for themselves. They take and give it back in inner loops, and glibc before 2.38 never reuses
 * what aligned_alloc gave out in small pieces. So each thread keeps its blocks, and hands out the first free one that is
 * large enough. */
#include "eqfuse_runtime.h"

#include <stdlib.h>

#ifdef __linux__
#include <pthread.h>
#endif

typedef struct {
    void *memory;
    uint64_t bytes;
    int taken;
} block;

enum { BLOCKS = 64 };
static EQFUSE_OF_THREAD block blocks[BLOCKS];

#ifdef __linux__
static _Thread_local int keeps_blocks;
static pthread_key_t at_exit; /* of a thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_blocks(void *own) {
    for (block *each = own; each < (block *)own + BLOCKS; each++) free(each->memory), each->memory = NULL, each->bytes = 0;
}

static void create_key(void) { pthread_key_create(&at_exit, free_blocks); }

void eqfuse_prepare_workspaces(void) { pthread_once(&once, create_key); }

/* Of this priority it runs last, after the threads of the pool have ended, whose blocks the key frees. */
static __attribute__((destructor(101))) void delete_key(void) {
    eqfuse_prepare_workspaces();
    pthread_key_delete(at_exit);
    free_blocks(blocks);
}

static void keep_blocks(void) {
    if (!keeps_blocks) keeps_blocks = 1, eqfuse_prepare_workspaces(), pthread_setspecific(at_exit, blocks);
}
#else
void eqfuse_prepare_workspaces(void) {}
static void keep_blocks(void) {} /* the one thread does not end */
#endif

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
    keep_blocks();
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

EQFUSE_SERVICE void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate_workspace;
EQFUSE_SERVICE int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;
