/* Operators: ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
 * ReduceLogSumExp */
#if IS_FLOAT(O0)
typedef double LOCAL(number);
#else
typedef O0 LOCAL(number);
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, axes = HAS(1) ? count_elements(in[1]) : 0;
    bool reduced[MAX_RANK] = {false};
    const bool whole = axes == 0 && !A_noop_with_empty_axes;
    for (int64_t i = 0; i < rank; ++i) reduced[i] = whole;
    for (int64_t i = 0; i < axes; ++i) {
        const int64_t axis = normal_index((int64_t)IN(1)[i], rank);
        if (axis < 0) return "an axis does not exist";
        reduced[axis] = true;
    }
    int64_t shape[MAX_RANK], kept = 0, outer[MAX_RANK], inner[MAX_RANK], strides[MAX_RANK], place[MAX_RANK] = {0};
    strides_of(rank, in[0]->shape, strides);
    for (int64_t i = 0; i < rank; ++i) {
        outer[i] = reduced[i] ? 1 : in[0]->shape[i];
        inner[i] = reduced[i] ? in[0]->shape[i] : 1;
        if (!reduced[i] || A_keepdims == 1) shape[kept++] = outer[i];
    }
    TRY(allocate(out[0], kept, shape, sizeof(O0)));
    const int64_t results = product(rank, outer), depth = product(rank, inner);
    for (int64_t r = 0; r < results; ++r, advance(rank, outer, place)) {
        const I0 *x = IN(0) + offset_of(rank, place, strides);
        int64_t index[MAX_RANK] = {0};
        LOCAL(number) value = 0;
#if defined OP_ReduceProd
        value = 1;
#elif defined OP_ReduceMax
        value = (LOCAL(number))LOWEST_O0;
#elif defined OP_ReduceMin
        value = (LOCAL(number))HIGHEST_O0;
#elif defined OP_ReduceLogSumExp
        LOCAL(number) largest = -INFINITY;
        for (int64_t k = 0; k < depth; ++k, advance(rank, inner, index)) {
            const LOCAL(number) y = x[offset_of(rank, index, strides)];
            if (y > largest) largest = y;
        }
        if (isinf((double)largest)) largest = 0;
#endif
        for (int64_t k = 0; k < depth; ++k, advance(rank, inner, index)) {
            const LOCAL(number) y = (LOCAL(number))x[offset_of(rank, index, strides)];
#if defined OP_ReduceProd
            value *= y;
#elif defined OP_ReduceMax
            if (y > value || y != y) value = y;
#elif defined OP_ReduceMin
            if (y < value || y != y) value = y;
#elif defined OP_ReduceL1
            value += y < 0 ? -y : y;
#elif defined OP_ReduceL2 || defined OP_ReduceSumSquare
            value += y * y;
#elif defined OP_ReduceLogSumExp
            value += exp(y - largest);
#else
            value += y;
#endif
        }
#if defined OP_ReduceMean
        value /= (LOCAL(number))depth;
#elif defined OP_ReduceL2
        value = (LOCAL(number))sqrt((double)value);
#elif defined OP_ReduceLogSum
        value = (LOCAL(number))log((double)value);
#elif defined OP_ReduceLogSumExp
        value = log(value) + largest;
#endif
        OUT(0)[r] = (O0)value;
    }
    return NULL;
}
