/* Operators: CumSum CumProd */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index((int64_t)*IN(1), rank);
    if (axis < 0) return "the axis does not exist";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    const int64_t extent = in[0]->shape[axis], inner = product(rank - axis - 1, in[0]->shape + axis + 1);
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i) {
        if (i / inner % extent) continue;
#ifdef OP_CumSum
        O0 value = 0;
#else
        O0 value = 1;
#endif
        for (int64_t k = 0; k < extent; ++k) {
            const int64_t place = i + (A_reverse ? extent - 1 - k : k) * inner;
            if (A_exclusive) OUT(0)[place] = value;
#ifdef OP_CumSum
            value += IN(0)[place];
#else
            value *= IN(0)[place];
#endif
            if (!A_exclusive) OUT(0)[place] = value;
        }
    }
    return NULL;
}
