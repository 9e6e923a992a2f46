/* Operators: Pad */

/* The place in an axis that a padded place shows; -1: none. */
static inline int64_t LOCAL(place)(int64_t i, int64_t extent) {
    if (i >= 0 && i < extent) return i;
    if (extent <= 0) return -1;
    if (strcmp(A_mode, "edge") == 0) return i < 0 ? 0 : extent - 1;
    if (strcmp(A_mode, "wrap") == 0) return (i % extent + extent) % extent;
    if (strcmp(A_mode, "reflect") == 0) {
        const int64_t period = 2 * (extent - 1);
        if (period == 0) return 0;
        i = (i % period + period) % period;
        return i < extent ? i : period - i;
    }
    return -1;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axes = HAS(3) ? count_elements(in[3]) : rank;
    int64_t shape[MAX_RANK], before[MAX_RANK] = {0}, strides[MAX_RANK], index[MAX_RANK] = {0};
    if (!has_elements(in[1], 2 * axes)) return "there is not one pad for each end of an axis";
    memcpy(shape, in[0]->shape, sizeof shape);
    strides_of(rank, shape, strides);
    for (int64_t i = 0; i < axes; ++i) {
        const int64_t axis = HAS(3) ? normal_index((int64_t)IN(3)[i], rank) : i;
        if (axis < 0) return "an axis does not exist";
        before[axis] = (int64_t)IN(1)[i];
        shape[axis] += before[axis] + (int64_t)IN(1)[i + axes];
    }
    const O0 value = HAS(2) && has_elements(in[2], 1) ? *(const O0 *)in[2]->data : 0;
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    if (rank == 0) {
        OUT(0)[0] = IN(0)[0];
        return NULL;
    }
    const int64_t last = rank - 1, length = shape[last], extent = in[0]->shape[last];
    const int64_t begin = clamp(before[last], 0, length), end = clamp(before[last] + extent, begin, length);
    const int64_t rows = length > 0 ? product(last, shape) : 0;
    for (int64_t row = 0; row < rows; ++row, advance(last, shape, index)) {
        O0 *const to = OUT(0) + row * length;
        int64_t from = 0;
        bool inside = true;
        for (int64_t a = 0; a < last && inside; ++a) {
            const int64_t place = LOCAL(place)(index[a] - before[a], in[0]->shape[a]);
            inside = place >= 0;
            from += place * strides[a];
        }
        for (int64_t i = 0; i < length; ++i) {
            if (i == begin && inside && begin < end) {
                memcpy(to + begin, IN(0) + from + begin - before[last], (size_t)(end - begin) * sizeof(O0));
                i = end;
                if (i == length) break;
            }
            const int64_t place = inside ? LOCAL(place)(i - before[last], extent) : -1;
            to[i] = place >= 0 ? IN(0)[from + place] : value;
        }
    }
    return NULL;
}
