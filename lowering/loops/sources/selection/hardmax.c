/* Operators: Hardmax */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = A_axis < 0 ? A_axis + rank : A_axis;
    if (axis < 0 || (axis >= rank && OPSET >= 13)) return "the axis does not exist";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    const int64_t outer = product(axis, in[0]->shape);
    const int64_t extent = OPSET >= 13 ? in[0]->shape[axis] : product(rank - axis, in[0]->shape + axis);
    const int64_t inner = OPSET >= 13 ? product(rank - axis - 1, in[0]->shape + axis + 1) : 1;
    for (int64_t i = 0; i < outer * inner; ++i) {
        const int64_t start = i / inner * extent * inner + i % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < extent; ++k)
            if (IN(0)[start + k * inner] > IN(0)[start + best * inner]) best = k;
        for (int64_t k = 0; k < extent; ++k) OUT(0)[start + k * inner] = k == best;
    }
    return NULL;
}
