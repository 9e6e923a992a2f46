/* Kernels by hand, with the calling convention of TVM's. */
#include "eqfuse_runtime.h"

static int64_t elements(const eqfuse_tensor *tensor) {
    int64_t count = 1;
    for (int axis = 0; axis < tensor->rank; ++axis) count *= tensor->shape[axis];
    return count;
}

#define KERNEL(name) \
    int __tvm_ffi_##name(void *self, const eqfuse_argument *arguments, int32_t count, eqfuse_argument *result)

/* y[i] = x[i] + 1, for as many elements as both have. */
KERNEL(increment) {
    const eqfuse_tensor *x = arguments[0].pointer, *y = arguments[1].pointer;
    (void)self, (void)count, (void)result;
    int64_t most = elements(x) < elements(y) ? elements(x) : elements(y);
    for (int64_t i = 0; i < most; ++i) ((float *)y->data)[i] = ((const float *)x->data)[i] + 1;
    return 0;
}

/* The positive elements of a vector, and how many there are. */
KERNEL(select_positive) {
    const eqfuse_tensor *x = arguments[0].pointer, *y = arguments[1].pointer, *number = arguments[2].pointer;
    int64_t *taken = number->data;
    (void)self, (void)count, (void)result;
    *taken = 0;
    for (int64_t i = 0; i < elements(x); ++i)
        if (((const float *)x->data)[i] > 0) ((float *)y->data)[(*taken)++] = ((const float *)x->data)[i];
    return 0;
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);

KERNEL(fail) {
    const char *parts[] = {"al", "ways"};
    (void)self, (void)arguments, (void)count, (void)result;
    TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 2);
    return -1;
}

extern int (*__TVMBackendParallelLaunch)(int (*)(int, void *, void *), void *, int);
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void *);

static int double_part(int part, void *environment, void *closure) {
    int parts = *(const int32_t *)((const char *)environment + sizeof(void *));
    const eqfuse_argument *arguments = closure;
    const eqfuse_tensor *x = arguments[0].pointer, *y = arguments[1].pointer;
    int64_t whole = elements(x), step = (whole + parts - 1) / parts;
    for (int64_t i = part * step; i < (part + 1) * step && i < whole; ++i) {
        float *space = __TVMBackendAllocWorkspace(1, 0, sizeof(float), 2, 32);
        if (!space) return -1;
        *space = ((const float *)x->data)[i];
        ((float *)y->data)[i] = 2 * *space;
        if (__TVMBackendFreeWorkspace(1, 0, space)) return -1;
    }
    return 0;
}

/* y[i] = 2 * x[i], in a loop that threads share, each with memory of its own. */
KERNEL(twice) {
    (void)self, (void)count, (void)result;
    return __TVMBackendParallelLaunch(double_part, (void *)arguments, 0);
}
