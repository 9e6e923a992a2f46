/* Operators: Transpose */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
    int64_t shape[MAX_RANK], steps[MAX_RANK], strides[MAX_RANK], index[MAX_RANK] = {0};
    strides_of(rank, in[0]->shape, steps);
    for (int64_t i = 0; i < rank; ++i) {
        const int64_t axis = ENTRY(A_perm, i, rank - 1 - i);
        shape[i] = in[0]->shape[axis];
        strides[i] = steps[axis];
    }
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]), row = rank ? shape[rank - 1] : 1, step = rank ? strides[rank - 1] : 0;
    for (int64_t i = 0; i < count; i += row, advance(rank - 1, shape, index)) {
        const I0 *x = IN(0) + offset_of(rank - 1, index, strides);
        for (int64_t k = 0; k < row; ++k) OUT(0)[i + k] = x[k * step];
    }
    return NULL;
}
