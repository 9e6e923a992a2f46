/* Operators: ArgMax ArgMin */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank), extent = axis < 0 ? 0 : in[0]->shape[axis];
    const bool last = A_select_last_index;
    if (axis < 0) return "the axis does not exist";
    int64_t shape[MAX_RANK];
    memcpy(shape, in[0]->shape, sizeof shape);
    shape[axis] = 1;
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    if (extent == 0 && outer * inner) return "an empty axis has no largest element";
    if (A_keepdims != 1) memmove(shape + axis, shape + axis + 1, (size_t)(rank - axis - 1) * sizeof *shape);
    TRY(allocate(out[0], rank - (A_keepdims != 1), shape, sizeof(O0)));
    for (int64_t i = 0; i < outer * inner; ++i) {
        const I0 *x = IN(0) + i / inner * extent * inner + i % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < extent; ++k) {
            const I0 a = x[k * inner], b = x[best * inner];
#ifdef OP_ArgMax
            if (a > b || (last && a == b)) best = k;
#else
            if (a < b || (last && a == b)) best = k;
#endif
        }
        OUT(0)[i] = best;
    }
    return NULL;
}
