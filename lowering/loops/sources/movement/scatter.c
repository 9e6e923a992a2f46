/* Operators: Scatter ScatterElements ScatterND */

static inline void LOCAL(update)(O0 *to, O0 update) {
    if (strcmp(A_reduction, "none") == 0)
        *to = update;
    else if (strcmp(A_reduction, "add") == 0)
        *to = *to + update;
    else if (strcmp(A_reduction, "mul") == 0)
        *to = *to * update;
    else if (strcmp(A_reduction, "max") == 0)
        *to = update > *to || update != update ? update : *to;
    else
        *to = update < *to || update != update ? update : *to;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const O0 *updates = in[2]->data;
    const int64_t rank = in[0]->rank;
    int64_t strides[MAX_RANK];
    strides_of(rank, in[0]->shape, strides);
#ifdef OP_ScatterND
    const int64_t last = in[1]->rank - 1, depth = in[1]->shape[last];
    if (depth > rank) return "an index has more entries than axes";
    if (in[2]->rank != last + rank - depth || product(last, in[2]->shape) != product(last, in[1]->shape) ||
        memcmp(in[2]->shape + last, in[0]->shape + depth, (size_t)(rank - depth) * sizeof *strides) != 0)
        return "the updates have another shape than the indices ask for";
    TRY(copy_tensor(out[0], in[0], sizeof(O0)));
    const int64_t inner = product(rank - depth, in[0]->shape + depth), picks = product(last, in[1]->shape);
    for (int64_t i = 0; i < picks; ++i) {
        O0 *to = OUT(0);
        for (int64_t k = 0; k < depth; ++k) {
            const int64_t place = normal_index((int64_t)IN(1)[i * depth + k], in[0]->shape[k]);
            if (place < 0) return "an index is outside of its axis";
            to += place * strides[k];
        }
        for (int64_t k = 0; k < inner; ++k) LOCAL(update)(to + k, updates[i * inner + k]);
    }
#else
    const int64_t axis = normal_index(A_axis, rank);
    if (axis < 0 || in[1]->rank != rank) return "the axis does not exist";
    if (!has_shape(in[2], rank, in[1]->shape)) return "the updates have another shape than the indices";
    for (int64_t i = 0; i < rank; ++i)
        if (i != axis && in[1]->shape[i] > in[0]->shape[i]) return "there are more indices than places along an axis";
    TRY(copy_tensor(out[0], in[0], sizeof(O0)));
    const int64_t count = count_elements(in[1]), step = strides[axis], row = in[1]->shape[rank - 1];
    int64_t index[MAX_RANK] = {0};
    strides[axis] = 0;
    for (int64_t i = 0; i < count; i += row, advance(rank - 1, in[1]->shape, index)) {
        O0 *to = OUT(0) + offset_of(rank - 1, index, strides);
        for (int64_t k = 0; k < row; ++k) {
            const int64_t place = normal_index((int64_t)IN(1)[i + k], in[0]->shape[axis]);
            if (place < 0) return "an index is outside of its axis";
            LOCAL(update)(to + k * strides[rank - 1] + place * step, updates[i + k]);
        }
    }
#endif
    return NULL;
}
