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

/* Whether there is a scale for each element: one, one for each place on the axis, or one for each block of places. */
static inline bool LOCAL(fits)(const tensor *x, const tensor *scale) {
    if (count_elements(scale) == 1) return true;
    const int64_t axis = A_axis < 0 ? A_axis + x->rank : A_axis;
    if (axis < 0 || axis >= x->rank) return false;
    if (A_block_size <= 0) return has_shape(scale, 1, x->shape + axis);
    int64_t shape[MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = (shape[axis] + A_block_size - 1) / A_block_size;
    return has_shape(scale, x->rank, shape);
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    if (!LOCAL(fits)(in[0], in[1])) return "the scale does not fit the axis";
    if (HAS(2) && !has_elements(in[2], count_elements(in[1]))) return "the zero point is not as long as the scale";
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
