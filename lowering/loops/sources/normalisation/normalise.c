/* Operators: LayerNormalization RMSNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization
 * LpNormalization */

/* The number of elements from `axis` on, and of those in front of it. */
static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, *shape = in[0]->shape;
    if (WANTS(0)) TRY(allocate(out[0], rank, shape, sizeof(O0)));
#if defined OP_LpNormalization
    const int64_t axis = normal_index(A_axis, rank);
    if (axis < 0) return "the axis does not exist";
    const int64_t extent = shape[axis], inner = product(rank - axis - 1, shape + axis + 1),
                  outer = product(axis, shape);
    for (int64_t i = 0; i < outer * inner; ++i) {
        const int64_t start = i / inner * extent * inner + i % inner;
        double sum = 0;
        for (int64_t k = 0; k < extent; ++k) {
            const double x = (double)IN(0)[start + k * inner];
            sum += A_p == 1 ? fabs(x) : x * x;
        }
        if (A_p != 1) sum = sqrt(sum);
        for (int64_t k = 0; k < extent; ++k)
            OUT(0)[start + k * inner] = sum == 0 ? 0 : (O0)((double)IN(0)[start + k * inner] / sum);
    }
#elif defined OP_MeanVarianceNormalization
    int64_t outer[MAX_RANK], inner[MAX_RANK], strides[MAX_RANK], place[MAX_RANK] = {0};
    strides_of(rank, shape, strides);
    for (int64_t i = 0; i < rank; ++i) outer[i] = shape[i], inner[i] = 1;
    for (int64_t i = 0; i < A_axes_count; ++i) {
        const int64_t axis = normal_index(A_axes[i], rank);
        if (axis < 0) return "an axis does not exist";
        outer[axis] = 1, inner[axis] = shape[axis];
    }
    const int64_t results = product(rank, outer), depth = product(rank, inner);
    for (int64_t r = 0; r < results; ++r, advance(rank, outer, place)) {
        const int64_t start = offset_of(rank, place, strides);
        int64_t index[MAX_RANK] = {0};
        double mean = 0, squares = 0;
        for (int64_t k = 0; k < depth; ++k, advance(rank, inner, index)) {
            const double x = (double)IN(0)[start + offset_of(rank, index, strides)];
            mean += x, squares += x * x;
        }
        mean /= (double)depth;
        const double deviation = sqrt(squares / (double)depth - mean * mean);
        for (int64_t k = 0; k < depth; ++k, advance(rank, inner, index)) {
            const int64_t at = start + offset_of(rank, index, strides);
            OUT(0)[at] = (O0)(((double)IN(0)[at] - mean) / (deviation + 1e-9));
        }
    }
#else
#if defined OP_LayerNormalization || defined OP_RMSNormalization
    const int64_t axis = normal_index(A_axis, rank);
    if (axis < 0) return "the axis does not exist";
    const int64_t rows = product(axis, shape), extent = product(rank - axis, shape + axis);
    int64_t scale[MAX_RANK], bias[MAX_RANK] = {0};
    for (int64_t n = 1; n < 3; ++n)
        if (HAS(n) && !is_broadcast_to(in[n], rank, shape)) return "the scale or the bias does not fit the input";
    broadcast_strides(in[1], rank, scale);
    if (HAS(2)) broadcast_strides(in[2], rank, bias);
#else
    const int64_t plane = product(rank - 2, shape + 2), channels = shape[1];
#ifdef OP_GroupNormalization
    const int64_t groups = A_num_groups;
#else
    const int64_t groups = channels;
#endif
    if (groups && channels % groups) return "the channels do not divide into groups";
    for (int64_t n = 1; n < 3; ++n)
#ifdef OP_GroupNormalization
        if (OPSET < 21 ? !has_shape(in[n], 1, &groups) : !has_shape(in[n], 1, &channels))
#else
        if (!has_shape(in[n], 1, &channels))
#endif
            return "the scale or the bias is not one number for each channel or group";
    const int64_t rows = shape[0] * groups, extent = groups ? channels / groups * plane : 0;
#endif
#ifdef OP_LayerNormalization
    int64_t means[MAX_RANK];
    for (int64_t i = 0; i < rank; ++i) means[i] = i < axis ? shape[i] : 1;
    if (WANTS(1)) TRY(allocate(out[1], rank, means, sizeof(O1)));
    if (WANTS(2)) TRY(allocate(out[2], rank, means, sizeof(O2)));
#endif
    int64_t index[MAX_RANK] = {0};
    (void)index;
    for (int64_t r = 0; r < rows; ++r) {
        const I0 *x = IN(0) + r * extent;
        double mean = 0, squares = 0;
#ifndef OP_RMSNormalization
        for (int64_t k = 0; k < extent; ++k) mean += (double)x[k];
        mean /= (double)extent;
#endif
        for (int64_t k = 0; k < extent; ++k) squares += ((double)x[k] - mean) * ((double)x[k] - mean);
        const double factor = 1 / sqrt(squares / (double)extent + (double)A_epsilon);
#ifdef OP_LayerNormalization
        if (WANTS(1)) OUT(1)[r] = (O1)mean;
        if (WANTS(2)) OUT(2)[r] = (O2)factor;
#endif
        for (int64_t k = 0; k < extent; ++k) {
            double y = ((double)x[k] - mean) * factor;
#if defined OP_LayerNormalization || defined OP_RMSNormalization
            y *= (double)((const I1 *)in[1]->data)[offset_of(rank, index, scale)];
            if (HAS(2)) y += (double)((const I2 *)in[2]->data)[offset_of(rank, index, bias)];
            advance(rank, shape, index);
#else
            const int64_t channel = (r * extent + k) / plane % channels;
#ifdef OP_GroupNormalization
            const int64_t place = count_elements(in[1]) == groups ? channel / (channels / groups) : channel;
#else
            const int64_t place = channel;
#endif
            y = y * (double)((const O0 *)in[1]->data)[place] + (double)((const O0 *)in[2]->data)[place];
#endif
            if (WANTS(0)) OUT(0)[r * extent + k] = (O0)y;
        }
    }
#endif
    return NULL;
}
