/* Operators: CumSum CumProd */

#ifdef OP_CumSum
static O0 LOCAL(combine)(O0 left, O0 right) { return left + right; }
#else
static O0 LOCAL(combine)(O0 left, O0 right) { return left * right; }
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    if (!has_elements(in[1], 1)) return "the axis is no single number";
    const int64_t rank = in[0]->rank, axis = normal_index((int64_t)*IN(1), rank);
    if (axis < 0) return "the axis does not exist";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
#ifdef OP_CumSum
    const O0 nothing = 0;
#else
    const O0 nothing = 1;
#endif
    const int64_t extent = in[0]->shape[axis], inner = product(rank - axis - 1, in[0]->shape + axis + 1);
    const int64_t outer = product(axis, in[0]->shape), step = A_reverse ? -inner : inner;
    for (int64_t o = 0; o < outer; ++o) {
        const int64_t first = (o * extent + (A_reverse ? extent - 1 : 0)) * inner;
        const I0 *x = IN(0) + first;
        O0 *y = OUT(0) + first, value = nothing;
        for (int64_t k = 0; k < extent; ++k, x += step, y += step) {
            if (inner == 1) {  /* the value stays in a register */
                const O0 next = LOCAL(combine)(value, *x);
                *y = A_exclusive ? value : next;
                value = next;
                continue;
            }
            const O0 *before = y - step;
            const I0 *added = A_exclusive ? x - step : x;
            for (int64_t i = 0; i < inner; ++i)
                y[i] = k ? LOCAL(combine)(before[i], added[i]) : A_exclusive ? nothing : x[i];
        }
    }
    return NULL;
}
