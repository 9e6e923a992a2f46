/* Operators: MaxUnpool */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axes = rank - 2;
    int64_t pooled[MAX_RANK], shape[MAX_RANK], strides[MAX_RANK];
    if (!has_shape(in[1], rank, in[0]->shape)) return "there is not one index for each element";
    if (HAS(2) && !has_elements(in[2], rank)) return "the shape of the result has another number of axes";
    memcpy(pooled, in[0]->shape, sizeof pooled);
    for (int64_t i = 0; i < axes; ++i) {
        const int64_t padding = ENTRY(A_pads, i, 0) + ENTRY(A_pads, i + axes, 0);
        pooled[i + 2] = (pooled[i + 2] - 1) * ENTRY(A_strides, i, 1) - padding + A_kernel_shape[i];
    }
    for (int64_t i = 0; i < rank; ++i) shape[i] = HAS(2) ? ((const int64_t *)in[2]->data)[i] : pooled[i];
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    memset(out[0]->data, 0, (size_t)count_elements(out[0]) * sizeof(O0));
    strides_of(rank, shape, strides);
    const int64_t count = count_elements(in[0]), limit = product(rank, pooled);
    for (int64_t i = 0; i < count; ++i) {
        int64_t place = IN(1)[i], to = 0;
        if (place < 0 || place >= limit) return "an index is outside of the result";
        for (int64_t a = rank - 1; a >= 0; place /= pooled[a--]) {
            if (place % pooled[a] >= shape[a]) return "an index is outside of the result";
            to += place % pooled[a] * strides[a];
        }
        OUT(0)[to] = IN(0)[i];
    }
    return NULL;
}
