/* Operators: TensorScatter */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank);
    if (axis < 1) return "the axis does not exist";
    int64_t update[MAX_RANK];
    memcpy(update, in[0]->shape, sizeof update);
    update[axis] = in[1]->shape[axis];
    if (!has_shape(in[1], rank, update) || update[axis] > in[0]->shape[axis]) return "the update does not fit the cache";
    if (HAS(2) && !has_shape(in[2], 1, update)) return "there is not one place for each sequence";
    TRY(copy_tensor(out[0], in[0], sizeof(O0)));
    const int64_t outer = product(axis, in[0]->shape), inner = product(rank - axis - 1, in[0]->shape + axis + 1);
    const int64_t extent = in[0]->shape[axis], length = in[1]->shape[axis],
                  each = product(axis - 1, in[0]->shape + 1);
    for (int64_t i = 0; i < outer; ++i) {
        const int64_t start = HAS(2) ? (int64_t)IN(2)[i / each] : 0;
        for (int64_t k = 0; k < length; ++k) {
            int64_t place = start + k;
            if (strcmp(A_mode, "circular") == 0) place %= extent;
            if (place < 0 || place >= extent) return "an update is outside of the cache";
            memcpy(OUT(0) + (i * extent + place) * inner, (const O0 *)in[1]->data + (i * length + k) * inner,
                   (size_t)inner * sizeof(O0));
        }
    }
    return NULL;
}
