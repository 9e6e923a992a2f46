/* Operators: Expand Tile */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank = in[0]->rank, shape[MAX_RANK], strides[MAX_RANK], index[MAX_RANK] = {0};
    memcpy(shape, in[0]->shape, sizeof shape);
#ifdef OP_Expand
    tensor target = {.rank = in[1]->shape[0]};
    if (target.rank > MAX_RANK) return "a tensor has too many axes";
    for (int64_t i = 0; i < target.rank; ++i) target.shape[i] = (int64_t)IN(1)[i];
    if (!broadcast_shape(&rank, shape, &target)) return "the shape cannot be broadcast to";
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    broadcast_strides(in[0], rank, strides);
    const int64_t row = rank ? shape[rank - 1] : 1, step = rank ? strides[rank - 1] : 0;
    const int64_t outer = rank ? rank - 1 : 0, rows = product(outer, shape);
    for (int64_t i = 0; i < rows; ++i, advance(outer, shape, index)) {
        const I0 *x = IN(0) + offset_of(outer, index, strides);
        O0 *y = OUT(0) + i * row;
        if (step)
            for (int64_t k = 0; k < row; ++k) y[k] = x[k];
        else
            for (int64_t k = 0; k < row; ++k) y[k] = *x;
    }
#else
    if (!has_elements(in[1], rank)) return "there is not one number of repetitions for each axis";
    strides_of(rank, shape, strides);
    for (int64_t i = 0; i < rank; ++i) shape[i] *= (int64_t)IN(1)[i];
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t count = product(rank, shape);
    for (int64_t i = 0; i < count; ++i, advance(rank, shape, index)) {
        int64_t from = 0;
        for (int64_t a = 0; a < rank; ++a) from += index[a] % in[0]->shape[a] * strides[a];
        OUT(0)[i] = IN(0)[from];
    }
#endif
    return NULL;
}
