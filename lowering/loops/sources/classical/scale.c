/* Operators: Scaler Normalizer Binarizer */

#ifdef OP_Normalizer
/* What a row is divided by; a row whose norm is 0 stays. */
static inline float LOCAL(norm)(const I0 *x, int64_t count) {
    float norm = strcmp(A_norm, "MAX") == 0 ? -INFINITY : 0;
    for (int64_t i = 0; i < count; ++i) {
        const float value = (float)x[i];
        norm = strcmp(A_norm, "MAX") == 0 ? fmax(norm, value)
               : strcmp(A_norm, "L1") == 0 ? norm + fabs(value)
                                           : norm + value * value;
    }
    norm = strcmp(A_norm, "L2") == 0 ? sqrt(norm) : norm;
    return norm == 0 ? 1 : norm;
}
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]), columns = in[0]->rank > 0 ? in[0]->shape[in[0]->rank - 1] : 1;
#ifdef OP_Scaler
    if ((A_offset_count > 1 && A_offset_count != columns) || (A_scale_count > 1 && A_scale_count != columns))
        return "a Scaler has other columns than its input";
#endif
    for (int64_t i = 0; i < count; ++i) {
#if defined OP_Scaler
        const int64_t column = i % columns;
        const float offset = (float)ENTRY(A_offset, A_offset_count > 1 ? column : 0, 0);
        const float scale = (float)ENTRY(A_scale, A_scale_count > 1 ? column : 0, 1);
        OUT(0)[i] = ((float)IN(0)[i] - offset) * scale;
#elif defined OP_Binarizer
        OUT(0)[i] = IN(0)[i] > (I0)A_threshold;
#else
        if (i % columns == 0) {
            const float norm = LOCAL(norm)(IN(0) + i, columns);
            for (int64_t k = 0; k < columns; ++k) OUT(0)[i + k] = (float)IN(0)[i + k] / norm;
        }
#endif
    }
    return NULL;
}
