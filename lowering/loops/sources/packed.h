/* How compiled models call loops: as they call TVM's kernels. An argument is a DLTensor, or, if nobody knows its
 * shape before the run, a tensor of tensor.h: then a result says how large it is, and its owner frees the memory. */
#ifndef EQFUSE_PACKED_H
#define EQFUSE_PACKED_H

#define PACKED_TENSOR 4
#define PACKED_DLTENSOR 7
#define PACKED_CPU 1

typedef struct {
    void *data;
    int32_t device[2];
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} packed_tensor;

typedef struct {
    int32_t type_index;
    uint32_t padding;
    void *pointer __attribute__((aligned(8))); /* an argument takes 16 bytes, however long a pointer is */
} packed_argument;

typedef int packed_function(void *self, const packed_argument *arguments, int32_t count, packed_argument *result);

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);

/* The tensor of an argument; it borrows the memory. */
static inline tensor unpack(const packed_argument *argument) {
    tensor result = {0};
    if (argument->type_index == PACKED_TENSOR) {
        result = *(const tensor *)argument->pointer;
        result.is_owned = 0;
        return result;
    }
    const packed_tensor *packed = argument->pointer;
    result.data = (char *)packed->data + packed->byte_offset;
    result.rank = packed->rank;
    memcpy(result.shape, packed->shape, (size_t)packed->rank * sizeof *packed->shape);
    result.capacity = product(packed->rank, packed->shape) * (packed->bits < 8 ? 1 : packed->bits / 8);
    return result;
}

/* Hands a result over. The shape of a DLTensor is that which it has, or one that it may not exceed if the result is
 * measured; another one is an error, unless there are no elements: a Loop that did not run knows no shape of its rows. */
static inline const char *hand_over(const packed_argument *argument, tensor *result, bool is_measured) {
    if (argument->type_index == PACKED_TENSOR) {
        tensor *to = argument->pointer;
        if (result->is_owned && to->is_owned) free(to->data);
        if (!result->is_owned) result->is_owned = to->is_owned;
        *to = *result;
        result->is_owned = false;
        return NULL;
    }
    const packed_tensor *packed = argument->pointer;
    if (!count_elements(result) && (is_measured || !product(packed->rank, packed->shape))) return NULL;
    if (result->rank != packed->rank) return "a result has another rank than the model says";
    for (int64_t i = 0; i < result->rank; ++i)
        if (is_measured ? result->shape[i] > packed->shape[i] : result->shape[i] != packed->shape[i])
            return "a result has another shape than the model says";
    if (result->is_owned) memcpy(packed->data, result->data, (size_t)(count_elements(result) * packed->bits / 8));
    return NULL;
}

/* What sizes that follow from shapes are computed with. */
static inline int64_t eqfuse_floor(int64_t dividend, int64_t divisor) {
    if (!divisor) return -1; /* no size */
    const int64_t quotient = dividend / divisor;
    return quotient - (dividend % divisor && (dividend < 0) != (divisor < 0));
}

static inline int64_t eqfuse_times(int64_t a, int64_t b) {
    const int64_t most = (int64_t)1 << 56; /* as in eqfuse_runtime.c: sums of some stay below 2^63 */
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product) && product <= most && product >= -most) return product;
    return (a < 0) == (b < 0) ? most : -most;
}

static inline int64_t eqfuse_least(int64_t a, int64_t b) { return MIN_OF(a, b); }

static inline int64_t eqfuse_greatest(int64_t a, int64_t b) { return MAX_OF(a, b); }

/* Calls a compiled kernel on tensors of these element types (code and bits of each). If it fails it has said why. */
static inline const char *call_kernel(packed_function *kernel, const tensor *const *tensors, const uint8_t (*types)[2],
                                      int32_t count) {
    packed_tensor packed[count];
    packed_argument arguments[count], nothing = {0};
    for (int32_t i = 0; i < count; ++i) {
        packed[i] = (packed_tensor){
            .data = tensors[i]->data,
            .device = {PACKED_CPU, 0},
            .rank = (int32_t)tensors[i]->rank,
            .code = types[i][0],
            .bits = types[i][1],
            .lanes = 1,
            .shape = tensors[i]->shape,
        };
        arguments[i] = (packed_argument){PACKED_DLTENSOR, 0, &packed[i]};
    }
    return kernel(NULL, arguments, count, &nothing) ? "" : NULL;
}

/* Ends a program, with the operator that said what is wrong as its place. */
#define TRY_AT(operator, call)                                  \
    do {                                                        \
        const char *problem_ = (call);                          \
        if (problem_) return *place = (operator), problem_;     \
    } while (0)

static inline int finish(const char *problem, const char *place, tensor *values, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        if (values[i].is_owned) free(values[i].data);
    free(values);
    if (problem == NULL) return 0;
    if (*problem) TVMFFIErrorSetRaisedFromCStrParts(place, &problem, 1);
    return -1;
}

#endif
