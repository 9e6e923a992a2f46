/* What every plain loop is written with. A loop is the text of one file, compiled once for each combination of element
 * types and attributes that a model has:
 *
 *     static const char *NAME(const tensor *const *in, tensor *const *out)
 *
 * fills the outputs and returns NULL, or says in one line what is wrong with the inputs. An absent input or an output
 * that nobody reads is NULL. In front of the text stand these macros:
 *
 *     OP_Gather           1 for the operator that the loop is compiled for
 *     OPSET               the version of its operator set
 *     INPUTS, OUTPUTS     how many there are, absent ones too
 *     I0, I1, ... O0, ... the C types of the elements (char if a tensor is absent)
 *     IS_FLOAT(I0)        1 for floating-point types
 *     IS_LONG(I0)         1 for types of 64 bits
 *     LOWEST_O0, HIGHEST_O0 the least and the largest element of output 0, infinities included; the same for I0
 *     A_axis              an attribute, by its name, with ONNX's default if the node says nothing: that of the newest
 *                         version if the node's version lacks the attribute. A list is an array of A_axes_count
 *                         elements, a tensor too. Without a default a list has none, an integer is ABSENT, and any other
 *                         attribute is not defined.
 */
#ifndef EQFUSE_TENSOR_H
#define EQFUSE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define MAX_RANK 12
#define ABSENT INT64_MIN
#define ALIGNMENT 64 /* bytes; of the tensors that kernels take */
#define IS_FLOAT(type) IS_FLOAT_(type)
#define IS_FLOAT_(type) IS_FLOAT_##type
#define IS_FLOAT_float 1
#define IS_FLOAT_double 1
#define IS_FLOAT__Bool 0
#define IS_FLOAT_bool 0
#define IS_FLOAT_char 0
#define IS_FLOAT_int8_t 0
#define IS_FLOAT_int16_t 0
#define IS_FLOAT_int32_t 0
#define IS_FLOAT_int64_t 0
#define IS_FLOAT_uint8_t 0
#define IS_FLOAT_uint16_t 0
#define IS_FLOAT_uint32_t 0
#define IS_FLOAT_uint64_t 0
#define IS_LONG(type) IS_LONG_(type)
#define IS_LONG_(type) (IS_LONG_##type == 2)
#define IS_LONG_double 2
#define IS_LONG_int64_t 2
#define IS_LONG_uint64_t 2
#define IS_BOOL(type) IS_BOOL_(type)
#define IS_BOOL_(type) (IS_BOOL_##type == 2)
#define IS_BOOL__Bool 2
#define IS_BOOL_bool 2

/* A dense tensor, row by row. `capacity` bytes are at `data`; if `is_owned`, free() takes them. */
typedef struct {
    void *data;
    int64_t rank;
    int64_t shape[MAX_RANK];
    int64_t capacity;
    int64_t is_owned;
} tensor;

#define IN(n) ((const I##n *)in[n]->data)
#define OUT(n) ((O##n *)out[n]->data)
#define HAS(n) (in[n] != NULL)
#define WANTS(n) (n < OUTPUTS && out[n] != NULL)
#define TRY(call)                      \
    do {                               \
        const char *problem_ = (call); \
        if (problem_) return problem_; \
    } while (0)
/* An element of a list; without a list, another value. */
#define ENTRY(list, i, otherwise) (list##_count > 0 ? list[i] : (otherwise))
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define LOCAL(name) JOIN(NAME, name)
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

/* A float of which the fraction is cut, as ONNX Runtime has it on x86-64: what does not fit is the least word, of which
 * integers of fewer bits keep the last ones. Unsigned numbers of 64 bits from 2^63 on are moved by 2^63. */
static inline int32_t truncate_to_32(double x) {
    return x >= -0x1p31 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}

static inline int64_t truncate_to_64(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static inline uint64_t truncate_to_unsigned_64(double x) {
    const uint64_t top = (uint64_t)1 << 63;
    return x >= 0x1p63 ? (uint64_t)truncate_to_64(x - 0x1p63) ^ top : (uint64_t)truncate_to_64(x);
}

/* The float as an integer of the type, of which `lowest` is the least number. */
#define TRUNCATE(type, lowest, x)                                                       \
    (sizeof(type) < 4 || (sizeof(type) == 4 && (lowest) < 0) ? (type)truncate_to_32(x)   \
     : sizeof(type) == 4 || (lowest) < 0                     ? (type)truncate_to_64(x)   \
                                                             : (type)truncate_to_unsigned_64(x))

static inline int64_t product(int64_t count, const int64_t *extents) {
    int64_t result = 1;
    for (int64_t i = 0; i < count; ++i) result *= extents[i];
    return result;
}

static inline int64_t count_elements(const tensor *t) { return product(t->rank, t->shape); }

/* Whether a tensor has this shape. A loop asks it of each operand that it reads by the sizes of another one. */
static inline bool has_shape(const tensor *t, int64_t rank, const int64_t *shape) {
    return t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0;
}

/* Whether a tensor has that many elements; a number is a tensor of one. */
static inline bool has_elements(const tensor *t, int64_t count) { return count_elements(t) == count; }

/* Gives the tensor a shape, and memory if it has too little. Its elements are not kept. */
static inline const char *allocate(tensor *t, int64_t rank, const int64_t *shape, size_t item) {
    int64_t bytes = (int64_t)item;
    if (rank > MAX_RANK) return "a tensor has too many axes";
    for (int64_t i = 0; i < rank; ++i)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i], &bytes)) return "a tensor has no possible size";
    if (t->data == NULL || bytes > t->capacity) {
        if (t->is_owned) free(t->data);
        t->capacity = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
        t->data = aligned_alloc(ALIGNMENT, (size_t)t->capacity);
        t->is_owned = t->data != NULL;
        if (t->data == NULL) return t->capacity = 0, "out of memory";
    }
    t->rank = rank;
    memmove(t->shape, shape, (size_t)rank * sizeof *shape);
    return NULL;
}

static inline const char *copy_tensor(tensor *to, const tensor *from, size_t item) {
    TRY(allocate(to, from->rank, from->shape, item));
    memmove(to->data, from->data, (size_t)count_elements(from) * item);
    return NULL;
}

/* The number of elements from one place along an axis to the next. */
static inline void strides_of(int64_t rank, const int64_t *shape, int64_t *strides) {
    int64_t step = 1;
    for (int64_t i = rank - 1; i >= 0; --i) strides[i] = step, step *= shape[i];
}

/* The next place in row-major order; false behind the last one. */
static inline bool advance(int64_t rank, const int64_t *shape, int64_t *index) {
    for (int64_t i = rank - 1; i >= 0; --i) {
        if (++index[i] < shape[i]) return true;
        index[i] = 0;
    }
    return false;
}

static inline int64_t offset_of(int64_t rank, const int64_t *index, const int64_t *strides) {
    int64_t offset = 0;
    for (int64_t i = 0; i < rank; ++i) offset += index[i] * strides[i];
    return offset;
}

/* The shape that ONNX broadcasts two shapes to; the first one is replaced by it. False if they do not fit. */
static inline bool broadcast_shape(int64_t *rank, int64_t *shape, const tensor *other) {
    int64_t wide = MAX_OF(*rank, other->rank), result[MAX_RANK];
    for (int64_t i = 1; i <= wide; ++i) {
        int64_t a = i <= *rank ? shape[*rank - i] : 1, b = i <= other->rank ? other->shape[other->rank - i] : 1;
        if (a != b && a != 1 && b != 1) return false;
        result[wide - i] = a == 1 ? b : a;
    }
    *rank = wide;
    memcpy(shape, result, (size_t)wide * sizeof *shape);
    return true;
}

/* Whether a tensor can be repeated so that it has the shape. */
static inline bool is_broadcast_to(const tensor *t, int64_t rank, const int64_t *shape) {
    for (int64_t i = 1; i <= t->rank; ++i)
        if (t->shape[t->rank - i] != 1 && (i > rank || t->shape[t->rank - i] != shape[rank - i])) return false;
    return t->rank <= rank;
}

/* The strides of a tensor along the axes of a shape that it is broadcast to: 0 along those in which it is repeated. */
static inline void broadcast_strides(const tensor *t, int64_t rank, int64_t *strides) {
    int64_t step = 1, skipped = rank - t->rank;
    for (int64_t i = rank - 1; i >= 0; --i) {
        int64_t extent = i >= skipped ? t->shape[i - skipped] : 1;
        strides[i] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

/* An axis or a position counted from 0; -1 if it does not exist. */
static inline int64_t normal_index(int64_t index, int64_t extent) {
    if (index < 0) index += extent;
    return index >= 0 && index < extent ? index : -1;
}

/* The shape of a tensor along an axis, and that axis counted from 0; of all elements in a row if it is ABSENT. */
static inline const char *shape_along(const tensor *t, int64_t *axis, int64_t *rank, int64_t *shape) {
    const bool is_whole = *axis != ABSENT;
    *rank = is_whole ? t->rank : 1;
    *axis = is_whole ? normal_index(*axis, t->rank) : 0;
    memcpy(shape, t->shape, sizeof t->shape);
    if (!is_whole) shape[0] = count_elements(t);
    return *axis < 0 ? "the axis does not exist" : NULL;
}

static inline int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Windows along an axis of `size` places: each of `taps` places, `dilation` apart, begins `stride` behind the last one. */
typedef struct {
    int64_t size, taps, stride, dilation, before, behind;
} windows;

/* Those of axis `i` of as many `axes`, by the node's attributes. */
#define WINDOWS(i, axes, size, taps)                                                              \
    ((windows){size, taps, ENTRY(A_strides, i, 1), ENTRY(A_dilations, i, 1), ENTRY(A_pads, i, 0), \
               ENTRY(A_pads, (i) + (axes), 0)})

/* The places from the first tap of a window to the last. */
static inline int64_t reach_of(const windows *w) { return w->dilation * (w->taps - 1) + 1; }

/* The places, padding too, that are left behind the first window. */
static inline int64_t room_behind(const windows *w) { return w->size + w->before + w->behind - reach_of(w); }

static inline int64_t count_windows(const windows *w) {
    const int64_t room = room_behind(w);
    return room < 0 ? 0 : room / w->stride + 1;
}

static inline void share_padding(windows *w, int64_t padding, const char *auto_pad) {
    w->before = strcmp(auto_pad, "SAME_UPPER") == 0 ? padding / 2 : (padding + 1) / 2;
    w->behind = padding - w->before;
}

/* Pads, if that attribute says so, for one window that reaches so far at each `stride` places. */
static inline void pad_same(windows *w, const char *auto_pad, int64_t reach, int64_t least) {
    if (strncmp(auto_pad, "SAME", 4) != 0) return;
    const int64_t last = ((w->size + w->stride - 1) / w->stride - 1) * w->stride;
    share_padding(w, MAX_OF(least, last + reach - w->size), auto_pad);
}

/* The offset of the place that a tap of a window is at; false if it lies in the padding. */
static inline bool find_place(int64_t axes, const windows *w, const int64_t *at, const int64_t *tap,
                              const int64_t *strides, int64_t *offset) {
    bool inside = true;
    *offset = 0;
    for (int64_t i = 0; i < axes; ++i) {
        const int64_t place = at[i] * w[i].stride - w[i].before + tap[i] * w[i].dilation;
        inside = inside && place >= 0 && place < w[i].size;
        *offset += place * strides[i];
    }
    return inside;
}

#endif
