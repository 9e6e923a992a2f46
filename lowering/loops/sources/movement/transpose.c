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
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i, advance(rank, shape, index))
        OUT(0)[i] = IN(0)[offset_of(rank, index, strides)];
    return NULL;
}
