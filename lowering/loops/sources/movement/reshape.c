/* Operators: Reshape Flatten Squeeze Unsqueeze */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t shape[MAX_RANK], rank = 0;
    const tensor *x = in[0];
#if defined OP_Reshape
    rank = in[1]->shape[0];
    if (rank > MAX_RANK) return "a tensor has too many axes";
    int64_t free_axis = -1;
    for (int64_t i = 0; i < rank; ++i) {
        shape[i] = (int64_t)IN(1)[i];
        if (shape[i] == 0 && !A_allowzero) {
            if (i >= x->rank) return "a 0 in the new shape has no axis to copy";
            shape[i] = x->shape[i];
        }
        if (shape[i] == -1 && free_axis >= 0) return "only one size of the new shape may be -1";
        if (shape[i] == -1) free_axis = i, shape[i] = 1;
    }
    if (free_axis >= 0) {
        const int64_t rest = product(rank, shape);
        if (rest == 0 || count_elements(x) % rest) return "the elements do not fit the new shape";
        shape[free_axis] = count_elements(x) / rest;
    }
    if (product(rank, shape) != count_elements(x)) return "the elements do not fit the new shape";
#elif defined OP_Flatten
    const int64_t axis = A_axis < 0 ? A_axis + x->rank : A_axis;
    rank = 2;
    shape[0] = product(axis, x->shape);
    shape[1] = product(x->rank - axis, x->shape + axis);
#elif defined OP_Squeeze
    bool dropped[MAX_RANK] = {false};
    for (int64_t i = 0; i < x->rank && !HAS(1); ++i) dropped[i] = x->shape[i] == 1;
    for (int64_t i = 0; HAS(1) && i < count_elements(in[1]); ++i) {
        const int64_t axis = normal_index((int64_t)IN(1)[i], x->rank);
        if (axis < 0 || x->shape[axis] != 1) return "only axes of one element can be squeezed";
        dropped[axis] = true;
    }
    for (int64_t i = 0; i < x->rank; ++i)
        if (!dropped[i]) shape[rank++] = x->shape[i];
#else
    bool added[MAX_RANK] = {false};
    rank = x->rank + count_elements(in[1]);
    if (rank > MAX_RANK) return "a tensor has too many axes";
    for (int64_t i = 0; i < count_elements(in[1]); ++i) {
        const int64_t axis = normal_index((int64_t)IN(1)[i], rank);
        if (axis < 0 || added[axis]) return "axes have to exist, each once";
        added[axis] = true;
    }
    for (int64_t i = 0, k = 0; i < rank; ++i) shape[i] = added[i] ? 1 : x->shape[k++];
#endif
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    memmove(out[0]->data, x->data, (size_t)count_elements(x) * sizeof(O0));
    return NULL;
}
