/* Contexts of models. What compiled kernels call is elsewhere: their objects hold weak, empty pointers, of which
 * thread_pool.c has the one that shares loops, messages.c the one for complaints, workspaces.c those for memory. */
#define _GNU_SOURCE
#include "eqfuse_runtime.h"

#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#include <malloc.h>
#endif

#define MOST_ELEMENTS INT32_MAX /* of a tensor: kernels count them in 32 bits */
#define MOST_COUNT ((int64_t)1 << 56) /* of a product of sizes: sums of some stay below 2^63, and no tensor is so large */
#define HUGE_PAGE ((size_t)2 << 20) /* bytes; of a page that the processor keeps in one entry of its tables */

static int ports_of(const eqfuse_model *model) { return model->input_count + model->output_count; }

static int is_growing(const eqfuse_model *model, int port) {
    return model->buffers[model->port_buffers[port]].memory == EQFUSE_GROWING;
}

/* --- memory */

static size_t align(size_t bytes) { return (bytes + EQFUSE_ALIGNMENT - 1) / EQFUSE_ALIGNMENT * EQFUSE_ALIGNMENT; }

#ifdef __linux__
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
#else
/* aligned_alloc of newlib calls it, and some releases have none. */
__attribute__((weak)) int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return !*memory;
}

static void *allocate(size_t bytes) { return aligned_alloc(EQFUSE_ALIGNMENT, align(bytes ? bytes : 1)); }

const void *eqfuse_map(const char *path, size_t bytes) {
    (void)bytes;
    eqfuse_fail("%s: cannot be mapped without an operating system", path);
    return NULL;
}

void eqfuse_unmap(const void *content, size_t bytes) { (void)content, (void)bytes; }
#endif

/* --- sizes that are known at the call */

int64_t eqfuse_floor(int64_t dividend, int64_t divisor) {
    if (!divisor) return -1; /* no size: a run on these shapes is refused */
    int64_t quotient = dividend / divisor;
    return quotient - (dividend % divisor && (dividend < 0) != (divisor < 0));
}

int64_t eqfuse_times(int64_t a, int64_t b) {
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product) && product <= MOST_COUNT && product >= -MOST_COUNT) return product;
    return (a < 0) == (b < 0) ? MOST_COUNT : -MOST_COUNT;
}

int eqfuse_solve(const char *name, int64_t value, int64_t factor, int64_t *size) {
    *size = value / factor;
    if (value >= 0 && value % factor == 0) return 0;
    return eqfuse_fail("the shapes of the inputs give the size %s no value: %ld is no multiple of %ld", name, (long)value,
                       (long)factor);
}

int eqfuse_demand(const char *name, int axis, int64_t extent, int64_t demanded) {
    if (extent == demanded) return 0;
    return eqfuse_fail("input %s: axis %d is %ld long, and must be %ld", name, axis, (long)extent, (long)demanded);
}

int eqfuse_measure(const char *name, int64_t value, int64_t bound, int64_t *size) {
    *size = value;
    if (value >= 0 && value <= bound) return 0;
    return eqfuse_fail("the size %s is %ld, which is not from 0 to %ld", name, (long)value, (long)bound);
}

/* The bytes of a tensor; SIZE_MAX if it has more elements than kernels count. */
static size_t bytes_of(const eqfuse_tensor *tensor) {
    int64_t elements = 1;
    for (int axis = 0; axis < tensor->rank; ++axis) elements = eqfuse_times(elements, tensor->shape[axis]);
    return elements < 0 || elements > MOST_ELEMENTS ? SIZE_MAX : (size_t)elements * (tensor->dtype.bits / 8);
}

static int refuse_size(void) {
    return eqfuse_fail("a tensor has more than %d elements for these shapes of the inputs", MOST_ELEMENTS);
}

typedef struct {
    const eqfuse_life *life;
    size_t bytes, place;
} placed_life;

static int compare_lives(const void *left, const void *right) {
    const placed_life *a = left, *b = right;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->life->buffer - b->life->buffer;
}

/* Places the buffers of the arena: the largest first, each at the lowest place that is free during its whole life. `lives`
 * are in the order of their places as far as they are placed. Returns the bytes of the whole. */
static size_t place_lives(placed_life *lives, int count) {
    size_t whole = 0;
    qsort(lives, (size_t)count, sizeof *lives, compare_lives);
    for (int i = 0; i < count; ++i) {
        placed_life next = lives[i];
        next.place = 0;
        for (int k = 0; k < i; ++k) {
            const eqfuse_life *other = lives[k].life;
            if (other->first > next.life->last || next.life->first > other->last) continue;
            if (lives[k].place >= next.place + next.bytes) break;
            if (lives[k].place + lives[k].bytes > next.place) next.place = lives[k].place + lives[k].bytes;
        }
        int position = i;
        for (; position > 0 && lives[position - 1].place > next.place; --position) lives[position] = lives[position - 1];
        lives[position] = next;
        if (next.place + next.bytes > whole) whole = next.place + next.bytes;
    }
    return whole;
}

static int lay_out(eqfuse_context *context) {
    const eqfuse_model *model = context->model;
    placed_life *lives = calloc((size_t)model->life_count + 1, sizeof *lives);
    int status = lives ? 0 : eqfuse_fail("there is no memory to lay out an arena");
    for (int i = 0; i < model->life_count && !status; ++i) {
        size_t bytes = bytes_of(&context->tensors[model->lives[i].buffer]);
        if (bytes == SIZE_MAX) status = refuse_size();
        lives[i] = (placed_life){&model->lives[i], align(bytes), 0};
    }
    if (!status) {
        size_t bytes = place_lives(lives, model->life_count);
        if (bytes > context->arena_bytes || !context->arena) {
            free(context->arena);
            context->arena = allocate(bytes);
            context->arena_bytes = context->arena ? bytes : 0;
            if (!context->arena) status = eqfuse_fail("there is no memory for an arena of %lu bytes", (unsigned long)bytes);
        }
    }
    for (int i = 0; i < model->life_count && !status; ++i)
        context->tensors[lives[i].life->buffer].data = context->arena + lives[i].place;
    for (int i = 0; i < model->view_count && !status; ++i)
        context->tensors[model->views[2 * i]].data = context->tensors[model->views[2 * i + 1]].data;
    free(lives);
    return status;
}

/* Whether memory is laid out for these shapes; notes them otherwise. */
static int note_shapes(eqfuse_context *context, const int64_t *const *shapes) {
    int64_t *noted = context->shapes;
    int is_same = context->has_shapes;
    for (int i = 0; i < context->model->input_count; ++i)
        for (size_t axis = 0; axis < context->model->inputs[i].rank; ++axis, ++noted)
            if (*noted != shapes[i][axis]) is_same = 0, *noted = shapes[i][axis];
    return is_same;
}

int eqfuse_set_shapes(eqfuse_context *context, const int64_t *const *shapes) {
    const eqfuse_model *model = context->model;
    for (int i = 0; i < model->input_count; ++i)
        for (size_t axis = 0; axis < model->inputs[i].rank; ++axis) {
            int64_t demanded = model->inputs[i].shape[axis] < 0 ? shapes[i][axis] : model->inputs[i].shape[axis];
            if (eqfuse_demand(model->inputs[i].name, (int)axis, shapes[i][axis], demanded)) return -1;
            if (shapes[i][axis] > MOST_ELEMENTS) return refuse_size();
        }
    if (!model->extend) return 0;
    if (note_shapes(context, shapes)) {
        if (model->measures) model->extend(context); /* the last run measured sizes of its own */
        return 0;
    }
    context->has_shapes = 0;
    if (model->solve(context, shapes)) return -1;
    model->extend(context);
    for (int i = 0; i < model->extent_count; ++i)
        if (context->extents[i] < 0) return eqfuse_fail("the model does not run on these shapes of the inputs");
    for (int i = 0; i < model->extent_count; ++i)
        if (context->extents[i] > MOST_ELEMENTS) return refuse_size();
    if (lay_out(context)) return -1;
    for (int port = 0; port < ports_of(model); ++port) { /* copies have the size of earlier shapes */
        free(context->copies[port]), context->copies[port] = NULL;
        context->port_bytes[port] = bytes_of(&context->tensors[model->port_buffers[port]]);
        if (context->port_bytes[port] == SIZE_MAX) return refuse_size();
        if (is_growing(model, port)) context->port_bytes[port] = EQFUSE_UNBOUNDED;
    }
    context->has_shapes = 1;
    return 0;
}

static const eqfuse_tensor *output_of(const eqfuse_context *context, int output) {
    return &context->tensors[context->model->port_buffers[context->model->input_count + output]];
}

size_t eqfuse_output_bytes(const eqfuse_context *context, int output) {
    return context->port_bytes[context->model->input_count + output];
}

const int64_t *eqfuse_output_shape(const eqfuse_context *context, int output) { return output_of(context, output)->shape; }

const void *eqfuse_output(const eqfuse_context *context, int output) { return output_of(context, output)->data; }

/* --- contexts */

static int allocate_context(eqfuse_context *context) {
    const eqfuse_model *model = context->model;
    size_t extents = (size_t)model->extent_count + 1, ports = (size_t)ports_of(model) + 1;
    context->extents = (int64_t *)model->extents;
    if (model->extend) {
        context->sizes = calloc((size_t)model->size_count + 1, sizeof *context->sizes);
        context->extents = calloc(extents, sizeof *context->extents);
        context->shapes = calloc(extents, sizeof *context->shapes);
        if (!context->sizes || !context->extents || !context->shapes) return -1;
        memcpy(context->extents, model->extents, extents * sizeof *context->extents);
    } else {
        context->arena = allocate(context->arena_bytes = model->arena_bytes);
        if (!context->arena) return -1;
    }
    context->tensors = calloc((size_t)model->buffer_count + 1, sizeof *context->tensors);
    context->arguments = calloc((size_t)model->argument_count + 1, sizeof *context->arguments);
    context->port_bytes = calloc(ports, sizeof *context->port_bytes);
    context->ports = calloc(ports, sizeof *context->ports);
    context->copies = calloc(ports, sizeof *context->copies);
    context->growing = calloc(ports, sizeof *context->growing);
    int has_ports = context->port_bytes && context->ports && context->copies && context->growing;
    return context->tensors && context->arguments && has_ports ? 0 : -1;
}

eqfuse_context *eqfuse_create(const eqfuse_model *model, const void *weights, int threads) {
    if (model->version != EQFUSE_VERSION) {
        eqfuse_fail("the model is of version %d, its runtime of version %d", model->version, EQFUSE_VERSION);
        return NULL;
    }
    if ((uintptr_t)weights % EQFUSE_ALIGNMENT || (!weights && model->weight_bytes)) {
        eqfuse_fail("the weights do not begin at a multiple of %d bytes", EQFUSE_ALIGNMENT);
        return NULL;
    }
    eqfuse_prepare_workspaces();
    eqfuse_context *context = calloc(1, sizeof *context);
    if (context) context->model = model, context->weights = weights, context->threads = threads;
    if (!context || allocate_context(context)) {
        eqfuse_destroy(context);
        eqfuse_fail("there is no memory for a context of %lu bytes", (unsigned long)model->arena_bytes);
        return NULL;
    }
    for (int b = 0; b < model->buffer_count; ++b) {
        const eqfuse_buffer *buffer = &model->buffers[b];
        void *data = buffer->memory == EQFUSE_WEIGHTS                     ? (void *)(context->weights + buffer->place)
                     : buffer->memory == EQFUSE_ARENA && context->arena ? context->arena + buffer->place
                                                                          : NULL;
        context->tensors[b] = (eqfuse_tensor){
            .data = data,
            .device = {EQFUSE_CPU, 0},
            .rank = buffer->rank,
            .dtype = {buffer->code, buffer->bits, 1},
            .shape = context->extents + buffer->first_extent,
        };
    }
    for (int port = 0; port < ports_of(model) && !model->extend; ++port)
        context->port_bytes[port] = bytes_of(&context->tensors[model->port_buffers[port]]);
    for (int i = 0; i < model->argument_count; ++i) {
        const eqfuse_buffer *buffer = &model->buffers[model->arguments[i]];
        context->arguments[i] = (eqfuse_argument){EQFUSE_TENSOR_ARGUMENT, 0, &context->tensors[model->arguments[i]]};
        if (buffer->memory == EQFUSE_GROWING)
            context->arguments[i] = (eqfuse_argument){EQFUSE_GROWING_ARGUMENT, 0, &context->growing[buffer->place]};
    }
    return context;
}

void eqfuse_destroy(eqfuse_context *context) {
    if (!context) return;
    for (int port = 0; context->copies && port < ports_of(context->model); ++port) free(context->copies[port]);
    for (int port = 0; context->growing && port < ports_of(context->model); ++port) free(context->growing[port].data);
    if (context->model->extend) free(context->sizes), free(context->extents), free(context->shapes);
    free(context->growing), free(context->copies), free(context->ports), free(context->port_bytes);
    free(context->arguments), free(context->tensors);
    free(context->arena), free(context);
}

/* Takes a tensor of the caller's as it is, or memory for its copy; of an output that grows, neither. */
static int bind_port(eqfuse_context *context, int port, void *data) {
    context->ports[port] = data;
    if (is_growing(context->model, port)) return 0;
    if ((uintptr_t)data % EQFUSE_ALIGNMENT == 0) return 0;
    if (!context->copies[port]) context->copies[port] = allocate(context->port_bytes[port]);
    context->ports[port] = context->copies[port];
    return context->copies[port] ? 0 : eqfuse_fail("there is no memory for a copy of %lu bytes", (unsigned long)context->port_bytes[port]);
}

/* Takes over the memory of an output that grew in a run; 0 if it is as large as the model says. */
static int take_growing(eqfuse_context *context, int output) {
    int port = context->model->input_count + output;
    const eqfuse_growing *growing = &context->growing[port];
    eqfuse_tensor *tensor = &context->tensors[context->model->port_buffers[port]];
    int64_t elements = 1, said = 1;
    for (int axis = 0; axis < tensor->rank; ++axis) said = eqfuse_times(said, tensor->shape[axis]);
    for (int axis = 0; axis < growing->rank; ++axis) elements = eqfuse_times(elements, growing->shape[axis]);
    tensor->data = growing->data;
    if (elements == said && (growing->rank == tensor->rank || !said)) return 0;
    return eqfuse_fail("output %s has another shape than the model says", context->model->outputs[output].name);
}

int eqfuse_run(eqfuse_context *context, const void *const *inputs, void *const *outputs) {
    const eqfuse_model *model = context->model;
    void **results = context->ports + model->input_count;
    eqfuse_forget_message();
    if (model->extend) {
        if (!context->has_shapes) return eqfuse_fail("the shapes of the inputs were not set, or do not fit");
        if (model->measures) model->extend(context); /* the last run measured sizes of its own */
    }
    for (int i = 0; i < model->input_count; ++i) {
        if (bind_port(context, i, (void *)inputs[i])) return -1;
        if (context->ports[i] != inputs[i])
            memcpy(context->ports[i], inputs[i], context->port_bytes[i]);
    }
    for (int i = 0; i < model->output_count; ++i)
        if (bind_port(context, model->input_count + i, outputs[i])) return -1;
    for (int i = 0; i < model->bound_count; ++i) {
        int buffer = model->bound[i];
        context->tensors[buffer].data = context->ports[model->buffers[buffer].place];
    }
    eqfuse_use_threads(context->threads);
    int status = model->run(context);
    EQFUSE_MARK(0);
    if (context->watcher) context->watcher(context->watching, -1);
    if (status) return status;
    for (int i = 0; i < model->output_count; ++i) {
        if (is_growing(model, model->input_count + i)) {
            if (take_growing(context, i)) return -1;
        } else if (results[i] != outputs[i]) {
            memcpy(outputs[i], results[i], bytes_of(output_of(context, i)));
        }
    }
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
    size_t bytes = bytes_of(result);
    if (bytes) memcpy(result->data, source->data, bytes);
}
