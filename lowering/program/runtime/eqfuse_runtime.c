/* Contexts of models, and the services that compiled kernels call. The kernels' objects hold weak, empty pointers of the
 * names at the end; thread_pool.c has the one that shares loops. */
#define _GNU_SOURCE
#include "eqfuse_runtime.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20) /* bytes; of a page that the processor keeps in one entry of its tables */

static _Thread_local char message[512];

const char *eqfuse_message(void) { return message; }

int eqfuse_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return -1;
}

/* --- memory */

static size_t align(size_t bytes) { return (bytes + EQFUSE_ALIGNMENT - 1) / EQFUSE_ALIGNMENT * EQFUSE_ALIGNMENT; }

static void *allocate(size_t bytes) {
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : EQFUSE_ALIGNMENT;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment + (bytes ? 0 : alignment));
    if (memory && bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

const void *eqfuse_map(const char *path, size_t bytes) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    int is_whole = file >= 0 && !fstat(file, &status) && (uint64_t)status.st_size == bytes;
    void *content = is_whole && bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    if (content != MAP_FAILED) return content;
    eqfuse_fail("%s: is no file of %zu bytes that can be mapped", path, bytes);
    return NULL;
}

void eqfuse_unmap(const void *content, size_t bytes) {
    if (content) munmap((void *)content, bytes);
}

/* --- contexts */

static int ports_of(const eqfuse_model *model) { return model->input_count + model->output_count; }

eqfuse_context *eqfuse_create(const eqfuse_model *model, const void *weights, int threads) {
    if (model->version != EQFUSE_VERSION) {
        eqfuse_fail("the model is of version %d, its runtime of version %d", model->version, EQFUSE_VERSION);
        return NULL;
    }
    if ((uintptr_t)weights % EQFUSE_ALIGNMENT || (!weights && model->weight_bytes)) {
        eqfuse_fail("the weights do not begin at a multiple of %d bytes", EQFUSE_ALIGNMENT);
        return NULL;
    }
    eqfuse_context *context = calloc(1, sizeof *context);
    if (context) {
        context->model = model, context->weights = weights, context->threads = threads;
        context->arena = allocate(model->arena_bytes);
        context->tensors = calloc((size_t)model->buffer_count + 1, sizeof *context->tensors);
        context->arguments = calloc((size_t)model->argument_count + 1, sizeof *context->arguments);
        context->ports = calloc((size_t)ports_of(model) + 1, sizeof *context->ports);
        context->copies = calloc((size_t)ports_of(model) + 1, sizeof *context->copies);
    }
    if (!context || !context->arena || !context->tensors || !context->arguments || !context->ports || !context->copies) {
        eqfuse_destroy(context);
        eqfuse_fail("there is no memory for a context of %zu bytes", model->arena_bytes);
        return NULL;
    }
    for (int b = 0; b < model->buffer_count; ++b) {
        const eqfuse_buffer *buffer = &model->buffers[b];
        void *data = buffer->memory == EQFUSE_ARENA     ? context->arena + buffer->place
                     : buffer->memory == EQFUSE_WEIGHTS ? (void *)(context->weights + buffer->place)
                                                        : NULL;
        context->tensors[b] = (eqfuse_tensor){
            .data = data,
            .device = {EQFUSE_CPU, 0},
            .rank = buffer->rank,
            .dtype = {buffer->code, buffer->bits, 1},
            .shape = model->extents + buffer->first_extent,
        };
    }
    for (int i = 0; i < model->argument_count; ++i)
        context->arguments[i] = (eqfuse_argument){EQFUSE_TENSOR_ARGUMENT, 0, &context->tensors[model->arguments[i]]};
    return context;
}

void eqfuse_destroy(eqfuse_context *context) {
    if (!context) return;
    for (int port = 0; context->copies && port < ports_of(context->model); ++port) free(context->copies[port]);
    free(context->copies), free(context->ports), free(context->arguments), free(context->tensors);
    free(context->arena), free(context);
}

/* Takes a tensor of the caller's as it is, or notes memory for its copy. */
static int bind_port(eqfuse_context *context, int port, void *data, size_t bytes) {
    context->ports[port] = data;
    if (!bytes || (uintptr_t)data % EQFUSE_ALIGNMENT == 0) return 0;
    if (!context->copies[port]) context->copies[port] = allocate(bytes);
    context->ports[port] = context->copies[port];
    return context->copies[port] ? 0 : eqfuse_fail("there is no memory for a copy of %zu bytes", bytes);
}

int eqfuse_run(eqfuse_context *context, const void *const *inputs, void *const *outputs) {
    const eqfuse_model *model = context->model;
    void **results = context->ports + model->input_count;
    message[0] = 0;
    for (int i = 0; i < model->input_count; ++i) {
        if (bind_port(context, i, (void *)inputs[i], model->inputs[i].bytes)) return -1;
        if (context->ports[i] != inputs[i]) memcpy(context->ports[i], inputs[i], model->inputs[i].bytes);
    }
    for (int i = 0; i < model->output_count; ++i)
        if (bind_port(context, model->input_count + i, outputs[i], model->outputs[i].bytes)) return -1;
    for (int i = 0; i < model->bound_count; ++i) {
        int buffer = model->bound[i];
        context->tensors[buffer].data = context->ports[model->buffers[buffer].place];
    }
    eqfuse_use_threads(context->threads);
    int status = model->run(context);
    EQFUSE_MARK(0);
    if (context->watcher) context->watcher(context->watching, -1);
    if (status) return status;
    for (int i = 0; i < model->output_count; ++i)
        if (results[i] != outputs[i]) memcpy(outputs[i], results[i], model->outputs[i].bytes);
    return 0;
}

void eqfuse_set_callback(eqfuse_context *context, eqfuse_callback callback, void *user) {
    context->callback = callback, context->called = user;
}

void eqfuse_watch(eqfuse_context *context, eqfuse_watcher watcher, void *user) {
    context->watcher = watcher, context->watching = user;
}

int eqfuse_call_back(eqfuse_context *context, int number, const eqfuse_argument *arguments, int32_t count) {
    if (!context->callback) return eqfuse_fail("the model calls its host program, which has given no function to call");
    return context->callback(context->called, number, arguments, count);
}

void eqfuse_copy(const eqfuse_tensor *source, const eqfuse_tensor *result) {
    size_t bytes = result->dtype.bits / 8;
    for (int axis = 0; axis < result->rank; ++axis) bytes *= (size_t)result->shape[axis];
    if (bytes) memcpy(result->data, source->data, bytes);
}

/* --- services of kernels */

/* Workspaces are taken and given back in inner loops, and glibc before 2.38 never reuses what aligned_alloc gave out in
 * small pieces. So each thread keeps its blocks, and hands out the first free one that is large enough. */
typedef struct {
    void *memory;
    uint64_t bytes;
    int taken;
} block;

enum { BLOCKS = 64 };
static _Thread_local block blocks[BLOCKS];
static _Thread_local int keeps_blocks;
static pthread_key_t at_exit; /* of a thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_blocks(void *own) {
    for (block *each = own; each < (block *)own + BLOCKS; each++) free(each->memory), each->memory = NULL, each->bytes = 0;
}

static void create_key(void) { pthread_key_create(&at_exit, free_blocks); }

static __attribute__((destructor)) void delete_key(void) {
    pthread_once(&once, create_key);
    pthread_key_delete(at_exit);
    free_blocks(blocks);
}

static void *take(block *chosen, uint64_t bytes) {
    if (chosen->bytes < bytes) {
        free(chosen->memory);
        chosen->bytes = align(bytes);
        chosen->memory = aligned_alloc(EQFUSE_ALIGNMENT, chosen->bytes);
        if (!chosen->memory) chosen->bytes = 0;
    }
    chosen->taken = chosen->memory != NULL;
    return chosen->memory;
}

static void *allocate_workspace(int device, int index, uint64_t bytes, int type_code, int type_bits) {
    (void)device, (void)index, (void)type_code, (void)type_bits;
    block *spare = NULL;
    if (!keeps_blocks) keeps_blocks = 1, pthread_once(&once, create_key), pthread_setspecific(at_exit, blocks);
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

#define SERVICE __attribute__((visibility("hidden")))

SERVICE void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate_workspace;
SERVICE int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;

/* A kernel's complaint about its arguments, before it returns something else than 0. */
SERVICE void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
    size_t used = (size_t)snprintf(message, sizeof message, "%s: ", kind);
    for (int32_t i = 0; i < count && used < sizeof message; i++)
        if (parts[i]) used += (size_t)snprintf(message + used, sizeof message - used, "%s", parts[i]);
}
