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

KERNEL(fail) {
    (void)self, (void)arguments, (void)count, (void)result;
    return eqfuse_fail("ValueError: always");
}
