/* Operators: GatherElements */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[1]->rank, axis = normal_index(A_axis, rank);
    if (axis < 0 || in[0]->rank != rank) return "the axis does not exist";
    for (int64_t i = 0; i < rank; ++i)
        if (i != axis && in[1]->shape[i] > in[0]->shape[i]) return "there are more indices than places along an axis";
    int64_t strides[MAX_RANK], index[MAX_RANK] = {0};
    strides_of(rank, in[0]->shape, strides);
    TRY(allocate(out[0], rank, in[1]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[1]), row = in[1]->shape[rank - 1], step = strides[axis];
    strides[axis] = 0;
    for (int64_t i = 0; i < count; i += row, advance(rank - 1, in[1]->shape, index)) {
        const I0 *x = IN(0) + offset_of(rank - 1, index, strides);
        for (int64_t k = 0; k < row; ++k) {
            const int64_t place = normal_index((int64_t)IN(1)[i + k], in[0]->shape[axis]);
            if (place < 0) return "an index is outside of its axis";
            OUT(0)[i + k] = x[k * strides[rank - 1] + place * step];
        }
    }
    return NULL;
}
