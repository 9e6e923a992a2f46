/* A compiled model, and what runs it. Plain C11 for Linux, or, on one thread, for no operating system; no other library
 * than the C library's.
 *
 *   eqfuse_context *context = eqfuse_create(&MODEL, WEIGHTS, threads);
 *   if (!context || eqfuse_run(context, inputs, outputs)) fputs(eqfuse_message(), stderr);
 *   eqfuse_destroy(context);
 *
 * A context holds the memory of one run. One thread at a time may use a context; different contexts, of one model or of
 * several, may be used at once. The structures of tensors and arguments have the layouts of DLPack (DLTensor) and of TVM's
 * foreign function interface (TVMFFIAny). */
#ifndef EQFUSE_RUNTIME_H
#define EQFUSE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EQFUSE_API __attribute__((visibility("default")))
#define EQFUSE_SERVICE __attribute__((visibility("hidden"))) /* what kernels' objects call by a name of TVM's */
#define EQFUSE_ALIGNMENT 64
#define EQFUSE_VERSION 1 /* of the structures below: a model runs with a runtime of the same version */

typedef struct eqfuse_model eqfuse_model;
typedef struct eqfuse_context eqfuse_context;

/* An input or output of the model, as in a .npy file: row by row, `dtype` such as "<f4". An extent of -1 is known at the
 * call only, as are the `bytes` then, which are 0 here. */
typedef struct {
    const char *name, *dtype;
    size_t rank;
    const int64_t *shape;
    size_t bytes;
} eqfuse_tensor_info;

/* A context whose loops are shared by that many threads, but not more than there are cores: its own memory, and the
 * weights, which must outlive it and begin at a multiple of EQFUSE_ALIGNMENT. NULL if there is no memory for it. */
EQFUSE_API eqfuse_context *eqfuse_create(const eqfuse_model *model, const void *weights, int threads);
EQFUSE_API void eqfuse_destroy(eqfuse_context *context);

/* Sets the shapes of all inputs, for a model with extents of -1, and lays memory out for them; a call with the same
 * shapes as the last one costs nothing. 0, or not 0 if the shapes do not fit each other or the model. */
EQFUSE_API int eqfuse_set_shapes(eqfuse_context *context, const int64_t *const *shapes);

/* The bytes that an output needs, and its shape. If that depends on the values of inputs, the bytes are the most that it
 * may need, and the shape is known after the run. If nothing says how large it can get, the bytes are EQFUSE_UNBOUNDED:
 * a run takes memory for it itself (the pointer to it among the outputs may be NULL), which eqfuse_output tells, and which
 * is the context's until the next run. */
EQFUSE_API size_t eqfuse_output_bytes(const eqfuse_context *context, int output);
EQFUSE_API const int64_t *eqfuse_output_shape(const eqfuse_context *context, int output);
EQFUSE_API const void *eqfuse_output(const eqfuse_context *context, int output);
#define EQFUSE_UNBOUNDED SIZE_MAX

/* Reads the inputs and fills the outputs: dense tensors, none overlapping another. Those that do not begin at a multiple
 * of EQFUSE_ALIGNMENT cost a copy. 0, or what is not 0: eqfuse_message() says why. */
EQFUSE_API int eqfuse_run(eqfuse_context *context, const void *const *inputs, void *const *outputs);

/* Why the last call in this thread failed. */
EQFUSE_API const char *eqfuse_message(void);

/* A file's content, which is shared with other processes that map it; NULL if it has not this size, and always without
 * Linux. The bytes stay readable until eqfuse_unmap. */
EQFUSE_API const void *eqfuse_map(const char *path, size_t bytes);
EQFUSE_API void eqfuse_unmap(const void *content, size_t bytes);

/* --- what generated models are made of */

#ifdef __linux__
#define EQFUSE_OF_THREAD _Thread_local
#else
#define EQFUSE_OF_THREAD /* there is one */
#endif

typedef struct {
    void *data;
    struct {
        int32_t type, index;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    const int64_t *shape, *strides; /* no strides: row by row */
    uint64_t byte_offset;
} eqfuse_tensor;

typedef struct {
    int32_t type_index;
    uint32_t padding;
    void *pointer __attribute__((aligned(8))); /* an argument takes 16 bytes, however long a pointer is */
} eqfuse_argument;

/* A tensor that grows: `capacity` bytes are at `data`. What fills it may replace them by others, which are owned then. */
#define EQFUSE_MOST_AXES 12
typedef struct {
    void *data;
    int64_t rank, shape[EQFUSE_MOST_AXES], capacity, is_owned;
} eqfuse_growing;

#define EQFUSE_CPU 1
#define EQFUSE_GROWING_ARGUMENT 4
#define EQFUSE_TENSOR_ARGUMENT 7

/* A compiled kernel: 0, or not 0 after it reported what is wrong. */
typedef int (*eqfuse_kernel)(void *self, const eqfuse_argument *arguments, int32_t count, eqfuse_argument *result);

/* What the host program runs for the model: 0, or not 0 if it failed. */
typedef int (*eqfuse_callback)(void *user, int number, const eqfuse_argument *arguments, int32_t count);

EQFUSE_API void eqfuse_set_callback(eqfuse_context *context, eqfuse_callback callback, void *user);

/* Is told the number of each step before it runs, and -1 behind the last. */
typedef void (*eqfuse_watcher)(void *user, int step);
EQFUSE_API void eqfuse_watch(eqfuse_context *context, eqfuse_watcher watcher, void *user);

/* Where the bytes of a buffer are: `place` bytes into the arena or the weights, or in the tensor of that number of the
 * caller's, the outputs behind the inputs; or in memory of the context's for the output of that number. */
enum { EQFUSE_ARENA, EQFUSE_WEIGHTS, EQFUSE_PORT, EQFUSE_GROWING };

typedef struct {
    uint64_t place;
    int32_t rank, first_extent;
    uint8_t memory, code, bits;
} eqfuse_buffer;

/* A buffer of an arena that is laid out at the call: filled by step `first`, read last by step `last`. */
typedef struct {
    int32_t buffer, first, last;
} eqfuse_life;

struct eqfuse_model {
    int32_t version, input_count, output_count, buffer_count, extent_count, argument_count, bound_count;
    const eqfuse_tensor_info *inputs, *outputs;
    const eqfuse_buffer *buffers;
    const int64_t *extents;   /* of all buffers; -1 is known at the call */
    const int32_t *arguments; /* of all steps: buffers */
    const int32_t *bound;     /* the buffers in tensors of the caller's */
    const int32_t *port_buffers; /* those of inputs, then outputs */
    size_t arena_bytes, weight_bytes;
    int (*run)(eqfuse_context *context);
    /* Of a model with sizes that are known at the call: how many there are, the arena's buffers, the views in it as pairs
     * of a buffer and the one that has its bytes, how many sizes steps measure, and functions that compute sizes from the inputs' shapes, and extents. */
    int32_t size_count, life_count, view_count, measures;
    const eqfuse_life *lives;
    const int32_t *views;
    int (*solve)(eqfuse_context *context, const int64_t *const *shapes);
    void (*extend)(eqfuse_context *context);
};

struct eqfuse_context {
    const eqfuse_model *model;
    const unsigned char *weights;
    unsigned char *arena;
    size_t arena_bytes;
    int64_t *sizes, *extents; /* of a model with sizes that are known at the call, else NULL and the model's */
    int64_t *shapes;          /* of the inputs, one behind the other, that memory is laid out for */
    int has_shapes;
    eqfuse_tensor *tensors;     /* one for each buffer */
    eqfuse_argument *arguments; /* those of each step behind those of the step before */
    size_t *port_bytes;         /* that inputs, then outputs, have at most */
    void **ports;               /* the memory of inputs, then outputs: the caller's, or, if that is not aligned, */
    void **copies;              /* copies; NULL until one is needed */
    eqfuse_growing *growing;    /* one for each input and output */
    eqfuse_watcher watcher;
    void *watching;
    eqfuse_callback callback;
    void *called;
    int threads;
};

/* The loops of the kernels that the calling thread runs are shared among that many threads from now on. */
EQFUSE_API void eqfuse_use_threads(int threads);

/* The memory that kernels take in a thread is freed when it ends, from now on. Kernels name what gives them memory by weak
 * pointers, for which no linker takes a file from a static library: this call has it do so. */
void eqfuse_prepare_workspaces(void);

/* Notes why a call in this thread fails; returns -1. */
int eqfuse_fail(const char *format, ...);
void eqfuse_forget_message(void);

/* What eqfuse_run returns if a branch that is taken cannot run on these shapes of the inputs. */
#define EQFUSE_REFUSED 1

static inline int eqfuse_call(eqfuse_kernel kernel, const eqfuse_argument *arguments, int32_t count) {
    eqfuse_argument result = {0, 0, NULL};
    return kernel(NULL, arguments, count, &result);
}

/* Of sizes that are known at the call. */
int eqfuse_solve(const char *name, int64_t value, int64_t factor, int64_t *size);
int eqfuse_demand(const char *name, int axis, int64_t extent, int64_t demanded);
int eqfuse_measure(const char *name, int64_t value, int64_t bound, int64_t *size);
int64_t eqfuse_floor(int64_t dividend, int64_t divisor);
int64_t eqfuse_times(int64_t a, int64_t b);
static inline int64_t eqfuse_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t eqfuse_greatest(int64_t a, int64_t b) { return a > b ? a : b; }

int eqfuse_call_back(eqfuse_context *context, int number, const eqfuse_argument *arguments, int32_t count);
void eqfuse_copy(const eqfuse_tensor *source, const eqfuse_tensor *result);

/* Counts under emulation (a program built with EQFUSE_EMULATION): what runs from here on belongs to this region. An
 * instruction that does nothing, which only the counting plugin notices. Region 0 is outside of all kernels. */
#define EQFUSE_RESET 65535
#if defined(EQFUSE_EMULATION) && defined(__aarch64__)
#define EQFUSE_MARK(region) __asm__ volatile(".inst %c0" ::"i"(0xD280001Fu | (unsigned)(region) << 5) : "memory")
#else
#define EQFUSE_MARK(region) ((void)0)
#endif

/* A step of a model's run function, whose `context` and `status` it uses. */
#define EQFUSE_STEP(number)                                                   \
    EQFUSE_MARK((number) + 1);                                                \
    if (context->watcher) context->watcher(context->watching, number)

#ifdef __cplusplus
}
#endif
#endif
