/* Operators: Concat */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank);
    if (axis < 0) return "the axis does not exist";
    int64_t shape[MAX_RANK];
    memcpy(shape, in[0]->shape, sizeof shape);
    for (int64_t n = 1; n < INPUTS; ++n) {
        if (in[n]->rank != rank) return "the inputs have different numbers of axes";
        for (int64_t i = 0; i < rank; ++i)
            if (i != axis && in[n]->shape[i] != shape[i]) return "the inputs have different shapes";
        shape[axis] += in[n]->shape[axis];
    }
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    O0 *result = OUT(0);
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t n = 0; n < INPUTS; ++n) {
            const int64_t run = in[n]->shape[axis] * inner;
            memcpy(result, (const O0 *)in[n]->data + i * run, (size_t)run * sizeof(O0));
            result += run;
        }
    return NULL;
}
