/* Operators: OneHot */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    if (!has_elements(in[1], 1)) return "the depth is no single number";
    if (!has_elements(in[2], 2)) return "there are not two values";
    const int64_t rank = in[0]->rank + 1, axis = normal_index(A_axis, rank), depth = (int64_t)*IN(1);
    if (axis < 0) return "the axis does not exist";
    int64_t shape[MAX_RANK];
    memcpy(shape, in[0]->shape, (size_t)axis * sizeof *shape);
    shape[axis] = depth;
    memcpy(shape + axis + 1, in[0]->shape + axis, (size_t)(rank - axis - 1) * sizeof *shape);
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t j = 0; j < inner; ++j) {
                const int64_t place = normal_index((int64_t)IN(0)[i * inner + j], depth);
                OUT(0)[(i * depth + k) * inner + j] = IN(2)[place == k];
            }
    return NULL;
}
