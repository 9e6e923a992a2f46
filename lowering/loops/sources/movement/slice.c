/* Operators: Slice */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
    int64_t shape[MAX_RANK], start[MAX_RANK], step[MAX_RANK], strides[MAX_RANK], index[MAX_RANK] = {0};
    for (int64_t i = 0; i < rank; ++i) start[i] = 0, step[i] = 1, shape[i] = in[0]->shape[i];
    strides_of(rank, in[0]->shape, strides);
    for (int64_t n = 2; n < INPUTS; ++n)
        if (HAS(n) && !has_elements(in[n], count_elements(in[1]))) return "starts, ends, axes and steps do not fit";
    for (int64_t i = 0; i < count_elements(in[1]); ++i) {
        const int64_t axis = HAS(3) ? normal_index((int64_t)IN(3)[i], rank) : i;
        if (axis < 0 || axis >= rank) return "an axis does not exist";
        const int64_t by = HAS(4) ? (int64_t)IN(4)[i] : 1, extent = in[0]->shape[axis];
        int64_t first = (int64_t)IN(1)[i], last = (int64_t)IN(2)[i];
        if (by == 0) return "a step is 0";
        if (first < 0) first += extent;
        if (last < 0) last = last < -extent - 1 ? -1 : last + extent;
        if (by < 0 && (last == INT64_MAX || last == INT32_MAX)) last = -1;  /* to the end, that is to the beginning */
        if (by > 0)
            first = clamp(first, 0, extent), last = clamp(last, 0, extent);
        else
            first = clamp(first, 0, extent - 1), last = clamp(last, -1, extent - 1);
        start[axis] = first;
        step[axis] = by;
        const int64_t way = by > 0 ? last - first : first - last, stride = by > 0 ? by : -MAX_OF(by, -INT64_MAX);
        shape[axis] = way <= 0 || extent == 0 ? 0 : (way - 1) / stride + 1;
    }
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    int64_t first = offset_of(rank, start, strides), outer = rank, run = 1;
    while (outer > 0 && step[outer - 1] == 1) {  /* axes whose places lie next to each other in both */
        run *= shape[--outer];
        if (shape[outer] != in[0]->shape[outer]) break;
    }
    for (int64_t i = 0; i < outer; ++i) strides[i] = shape[i] > 1 ? strides[i] * step[i] : 0;
    const int64_t count = run ? product(outer, shape) : 0;
    for (int64_t i = 0; i < count; ++i, advance(outer, shape, index))
        memcpy(OUT(0) + i * run, IN(0) + first + offset_of(outer, index, strides), (size_t)run * sizeof(O0));
    return NULL;
}
