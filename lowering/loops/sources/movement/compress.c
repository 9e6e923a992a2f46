/* Operators: Compress */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank, shape[MAX_RANK], axis = A_axis;
    TRY(shape_along(in[0], &axis, &rank, shape));
    const int64_t extent = shape[axis], limit = MIN_OF(extent, count_elements(in[1]));
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    shape[axis] = 0;
    for (int64_t k = 0; k < limit; ++k) shape[axis] += IN(1)[k] != 0;
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    O0 *to = OUT(0);
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t k = 0; k < limit; ++k)
            if (IN(1)[k]) memcpy(to, IN(0) + (i * extent + k) * inner, (size_t)inner * sizeof(O0)), to += inner;
    return NULL;
}
