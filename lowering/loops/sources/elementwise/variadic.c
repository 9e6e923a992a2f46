/* Operators: Sum Mean Max Min */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank = 0, shape[MAX_RANK];
    for (int64_t n = 0; n < INPUTS; ++n)
        if (!broadcast_shape(&rank, shape, in[n])) return "shapes cannot be broadcast to one";
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t count = product(rank, shape);
    for (int64_t n = 0; n < INPUTS; ++n) {
        int64_t strides[MAX_RANK], index[MAX_RANK] = {0};
        broadcast_strides(in[n], rank, strides);
        for (int64_t i = 0; i < count; ++i, advance(rank, shape, index)) {
            const O0 x = ((const O0 *)in[n]->data)[offset_of(rank, index, strides)], y = OUT(0)[i];
#if defined OP_Max
            OUT(0)[i] = n == 0 || x > y || x != x ? x : y;
#elif defined OP_Min
            OUT(0)[i] = n == 0 || x < y || x != x ? x : y;
#else
            OUT(0)[i] = n == 0 ? x : x + y;
#endif
        }
    }
#ifdef OP_Mean
    for (int64_t i = 0; i < count; ++i) OUT(0)[i] /= INPUTS;
#endif
    return NULL;
}
