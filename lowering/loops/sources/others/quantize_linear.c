/* Operators: QuantizeLinear DequantizeLinear */

/* The place of an element's scale. */
static inline int64_t LOCAL(place)(const tensor *x, const tensor *scale, int64_t i) {
    if (count_elements(scale) == 1) return 0;
    const int64_t axis = A_axis < 0 ? A_axis + x->rank : A_axis;
    const int64_t inner = product(x->rank - axis - 1, x->shape + axis + 1), along = i / inner % x->shape[axis];
    if (A_block_size > 0)
        return (i / inner / x->shape[axis] * scale->shape[axis] + along / A_block_size) * inner + i % inner;
    return along;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = LOCAL(place)(in[0], in[1], i);
        const float scale = (float)IN(1)[at];
#ifdef OP_QuantizeLinear
        const double zero = HAS(2) ? (double)((const O0 *)in[2]->data)[at] : 0;
        const double y = rint((double)((float)IN(0)[i] / scale)) + zero;
        OUT(0)[i] = (O0)(y < LOWEST_O0 || y != y ? LOWEST_O0 : y > HIGHEST_O0 ? HIGHEST_O0 : y);
#else
        const double zero = HAS(2) ? (double)((const I0 *)in[2]->data)[at] : 0;
        OUT(0)[i] = (O0)((float)((double)IN(0)[i] - zero) * scale);
#endif
    }
    return NULL;
}
