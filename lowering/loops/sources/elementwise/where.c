/* Operators: Where */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank = 0, shape[MAX_RANK], strides[3][MAX_RANK], index[MAX_RANK] = {0};
    for (int64_t n = 0; n < 3; ++n)
        if (!broadcast_shape(&rank, shape, in[n])) return "shapes cannot be broadcast to one";
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    for (int64_t n = 0; n < 3; ++n) broadcast_strides(in[n], rank, strides[n]);
    const int64_t count = product(rank, shape);
    for (int64_t i = 0; i < count; ++i, advance(rank, shape, index))
        OUT(0)
        [i] = IN(0)[offset_of(rank, index, strides[0])] ? IN(1)[offset_of(rank, index, strides[1])]
                                                        : IN(2)[offset_of(rank, index, strides[2])];
    return NULL;
}
