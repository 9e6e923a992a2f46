/* Operators: Where */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank = 0, shape[MAX_RANK], strides[3][MAX_RANK], index[MAX_RANK] = {0};
    for (int64_t n = 0; n < 3; ++n)
        if (!broadcast_shape(&rank, shape, in[n])) return "shapes cannot be broadcast to one";
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    for (int64_t n = 0; n < 3; ++n) broadcast_strides(in[n], rank, strides[n]);
    const int64_t count = product(rank, shape), row = rank ? shape[rank - 1] : 1;
    int64_t steps[3] = {0};
    for (int64_t n = 0; n < 3 && rank; ++n) steps[n] = strides[n][rank - 1];
    for (int64_t i = 0; i < count; i += row, advance(rank - 1, shape, index)) {
        const I0 *chosen = IN(0) + offset_of(rank - 1, index, strides[0]);
        const I1 *x = IN(1) + offset_of(rank - 1, index, strides[1]);
        const I2 *y = IN(2) + offset_of(rank - 1, index, strides[2]);
        for (int64_t k = 0; k < row; ++k) OUT(0)[i + k] = chosen[k * steps[0]] ? x[k * steps[1]] : y[k * steps[2]];
    }
    return NULL;
}
