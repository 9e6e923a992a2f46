/* Operators: ScatterElements Scatter */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank);
    if (axis < 0 || in[1]->rank != rank) return "the axis does not exist";
#ifdef A_reduction
    const char *reduction = A_reduction;
#else
    const char *reduction = "none";
#endif
    TRY(copy_tensor(out[0], in[0], sizeof(O0)));
    int64_t strides[MAX_RANK], index[MAX_RANK] = {0};
    strides_of(rank, in[0]->shape, strides);
    const int64_t count = count_elements(in[1]), step = strides[axis];
    strides[axis] = 0;
    for (int64_t i = 0; i < count; ++i, advance(rank, in[1]->shape, index)) {
        const int64_t place = normal_index((int64_t)IN(1)[i], in[0]->shape[axis]);
        if (place < 0) return "an index is outside of its axis";
        O0 *to = OUT(0) + offset_of(rank, index, strides) + place * step;
        const O0 update = ((const O0 *)in[2]->data)[i];
        if (reduction[0] == 'n')
            *to = update;
        else if (reduction[0] == 'a')
            *to = *to + update;
        else if (reduction[1] == 'u')
            *to = *to * update;
        else if (reduction[1] == 'a')
            *to = update > *to || update != update ? update : *to;
        else
            *to = update < *to || update != update ? update : *to;
    }
    return NULL;
}
