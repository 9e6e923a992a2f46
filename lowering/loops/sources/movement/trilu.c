/* Operators: Trilu */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, rows = in[0]->shape[rank - 2], columns = in[0]->shape[rank - 1];
    if (HAS(1) && !has_elements(in[1], 1)) return "the diagonal is no single number";
    const int64_t k = HAS(1) ? *(const int64_t *)in[1]->data : 0, count = count_elements(in[0]);
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = i / columns % rows, column = i % columns;
        OUT(0)[i] = (A_upper ? column - row >= k : column - row <= k) ? IN(0)[i] : 0;
    }
    return NULL;
}
