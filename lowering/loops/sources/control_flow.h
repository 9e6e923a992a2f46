/* What loops over a body are written with, and branches. */
#ifndef EQFUSE_CONTROL_FLOW_H
#define EQFUSE_CONTROL_FLOW_H

/* A part of a tensor: the place `at` along an axis, without that axis. */
static inline const char *take_slice(tensor *to, const tensor *from, int64_t axis, int64_t at, size_t item) {
    const int64_t outer = product(axis, from->shape), extent = from->shape[axis];
    const size_t run = (size_t)product(from->rank - axis - 1, from->shape + axis + 1) * item;
    int64_t shape[MAX_RANK];
    memcpy(shape, from->shape, sizeof shape);
    memmove(shape + axis, shape + axis + 1, (size_t)(from->rank - axis - 1) * sizeof *shape);
    TRY(allocate(to, from->rank - 1, shape, item));
    for (int64_t i = 0; i < outer; ++i)
        memcpy((char *)to->data + (size_t)i * run, (const char *)from->data + (size_t)(i * extent + at) * run, run);
    return NULL;
}

/* The reverse: the tensor at the place `at` of `extent` along a new axis. The first one says how large the others
 * are. */
static inline const char *put_slice(tensor *to, const tensor *from, int64_t axis, int64_t at, int64_t extent,
                                    bool first, size_t item) {
    if (first) {
        int64_t shape[MAX_RANK];
        if (from->rank >= MAX_RANK) return "a tensor has too many axes";
        memcpy(shape, from->shape, (size_t)axis * sizeof *shape);
        shape[axis] = extent;
        memcpy(shape + axis + 1, from->shape + axis, (size_t)(from->rank - axis) * sizeof *shape);
        TRY(allocate(to, from->rank + 1, shape, item));
    }
    const int64_t outer = product(axis, to->shape);
    const size_t run = (size_t)product(from->rank - axis, from->shape + axis) * item;
    if (to->rank != from->rank + 1 || memcmp(to->shape, from->shape, (size_t)axis * sizeof *to->shape) != 0 ||
        memcmp(to->shape + axis + 1, from->shape + axis, (size_t)(from->rank - axis) * sizeof *to->shape) != 0)
        return "what a body returns changes its size";
    for (int64_t i = 0; i < outer; ++i)
        memcpy((char *)to->data + (size_t)(i * extent + at) * run, (const char *)from->data + (size_t)i * run, run);
    return NULL;
}

/* Appends a tensor behind those of earlier iterations, of which there are `count`. */
static inline const char *append_slice(tensor *to, const tensor *from, int64_t count, size_t item) {
    const int64_t bytes = count_elements(from) * (int64_t)item;
    if (from->rank >= MAX_RANK) return "a tensor has too many axes";
    if (count && !(to->rank == from->rank + 1 && has_shape(from, from->rank, to->shape + 1)))
        return "what a body returns changes its size";
    if (to->data == NULL || (count + 1) * bytes > to->capacity) {
        const int64_t capacity = (2 * (count + 1) * bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
        void *data = aligned_alloc(ALIGNMENT, (size_t)capacity);
        if (data == NULL) return "out of memory";
        if (count) memcpy(data, to->data, (size_t)(count * bytes));
        if (to->is_owned) free(to->data);
        to->data = data, to->capacity = capacity, to->is_owned = true;
    }
    to->rank = from->rank + 1;
    to->shape[0] = count + 1;
    memmove(to->shape + 1, from->shape, (size_t)from->rank * sizeof *to->shape);
    memcpy((char *)to->data + count * bytes, from->data, (size_t)bytes);
    return NULL;
}

static inline void swap_tensors(tensor *a, tensor *b) {
    const tensor kept = *a;
    *a = *b;
    *b = kept;
}

#endif
