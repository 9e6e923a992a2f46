/* Operators: NonZero */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, count = count_elements(in[0]);
    int64_t shape[2] = {rank, 0}, strides[MAX_RANK];
    for (int64_t i = 0; i < count; ++i) shape[1] += IN(0)[i] != 0;
    TRY(allocate(out[0], 2, shape, sizeof(O0)));
    strides_of(rank, in[0]->shape, strides);
    for (int64_t i = 0, k = 0; i < count; ++i) {
        if (IN(0)[i] == 0) continue;
        for (int64_t a = 0; a < rank; ++a) OUT(0)[a * shape[1] + k] = i / strides[a] % in[0]->shape[a];
        ++k;
    }
    return NULL;
}
