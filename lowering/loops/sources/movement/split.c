/* Operators: Split */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank);
    if (axis < 0) return "the axis does not exist";
    const int64_t extent = in[0]->shape[axis], part = (extent + OUTPUTS - 1) / OUTPUTS;
    const int64_t outer = product(axis, in[0]->shape), inner = product(rank - axis - 1, in[0]->shape + axis + 1);
    int64_t shape[MAX_RANK], start = 0;
    if (HAS(1) && !has_elements(in[1], OUTPUTS)) return "there is not one size for each part";
    memcpy(shape, in[0]->shape, sizeof shape);
    for (int64_t n = 0; n < OUTPUTS; start += shape[axis], ++n) {
        shape[axis] = HAS(1) ? (int64_t)IN(1)[n] : MAX_OF(0, MIN_OF(part, extent - start));
        if (shape[axis] < 0 || shape[axis] > extent - start) return "the parts do not fit the axis";
        if (out[n] == NULL) continue;
        TRY(allocate(out[n], rank, shape, sizeof(O0)));
        const int64_t run = shape[axis] * inner;
        for (int64_t i = 0; i < outer; ++i)
            memcpy((O0 *)out[n]->data + i * run, IN(0) + (i * extent + start) * inner, (size_t)run * sizeof(O0));
    }
    return start == extent ? NULL : "the parts do not fit the axis";
}
