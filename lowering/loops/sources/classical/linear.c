/* Operators: LinearRegressor LinearClassifier SVMRegressor */

#ifdef OP_SVMRegressor
#define LANES 16 /* support vectors side by side: their sums are in vectors */

/* The kernel of a row and some support vectors, from their products or squared distances. */
static inline float LOCAL(kernel)(float sum) {
    const float gamma = A_kernel_params_count > 0 ? A_kernel_params[0] : 0;
    const float start = A_kernel_params_count > 1 ? A_kernel_params[1] : 0;
    const float degree = A_kernel_params_count > 2 ? A_kernel_params[2] : 0;
    if (strcmp(A_kernel_type, "RBF") == 0) return expf(-gamma * sum);
    if (strcmp(A_kernel_type, "POLY") == 0) return powf(gamma * sum + start, degree);
    if (strcmp(A_kernel_type, "SIGMOID") == 0) return tanhf(gamma * sum + start);
    return sum;
}

static float LOCAL(regress)(const I0 *x, int64_t columns) {
    float score = A_rho[0];
    for (int64_t first = 0; first < A_n_supports; first += LANES) {
        const int64_t lanes = MIN_OF(LANES, A_n_supports - first);
        float sums[LANES] = {0};
        for (int64_t i = 0; i < columns; ++i) {
            const float entry = (float)x[i], *vectors = A_support_vectors + i * A_n_supports + first;
            for (int64_t k = 0; k < lanes; ++k) {
                const float away = entry - vectors[k];
                sums[k] += strcmp(A_kernel_type, "RBF") == 0 ? away * away : entry * vectors[k];
            }
        }
        for (int64_t k = 0; k < lanes; ++k) score += A_coefficients[first + k] * LOCAL(kernel)(sums[k]);
    }
    if (A_n_supports == 0)
        for (int64_t i = 0; i < columns; ++i) score += A_coefficients[i] * (float)x[i];
    return A_one_class ? (score > 0 ? 1 : -1) : score;
}
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, columns = rank > 0 ? in[0]->shape[rank - 1] : 0;
    const int64_t rows = rank == 2 ? in[0]->shape[0] : 1;
    if (rank < 1 || rank > 2) return OPERATOR_NAME " takes rows";
    if (columns != A_columns) return OPERATOR_NAME " has other columns than its input";
    const int64_t results = A_results, shape[2] = {rows, results};
    tensor unread = {0}, *to = out[OUTPUTS - 1] ? out[OUTPUTS - 1] : &unread;
    TRY(allocate(to, 2, shape, sizeof(float)));
    float *y = to->data;
#ifdef OP_LinearClassifier
    if (out[0]) TRY(allocate(out[0], 1, &rows, sizeof(O0)));
#endif
    for (int64_t r = 0; r < rows; ++r, y += results) {
        const I0 *x = IN(0) + r * columns;
#ifdef OP_SVMRegressor
        y[0] = LOCAL(regress)(x, columns);
#else
        int64_t best = 0;
        for (int64_t k = 0; k < results; ++k) y[k] = k < A_intercepts_count ? A_intercepts[k] : 0;
        for (int64_t i = 0; i < columns; ++i)
            for (int64_t k = 0; k < results; ++k) y[k] += (float)x[i] * A_coefficients[i * results + k];
        for (int64_t k = 1; k < results; ++k) best = y[k] > y[best] ? k : best;
#endif
#ifdef OP_LinearClassifier
        if (out[0]) OUT(0)[r] = A_classlabels_ints[best];
        float sum = 0;
        const float most = y[best];
        for (int64_t k = 0; k < results; ++k) {
            if (strcmp(A_post_transform, "LOGISTIC") == 0) {
                const float part = 1 / (1 + expf(-fabsf(y[k])));
                y[k] = y[k] < 0 ? 1 - part : part;
            } else if (strcmp(A_post_transform, "SOFTMAX") == 0) {
                sum += y[k] = expf(y[k] - most);
            }
        }
        if (strcmp(A_post_transform, "SOFTMAX") == 0)
            for (int64_t k = 0; k < results; ++k) y[k] /= sum;
#endif
    }
    if (unread.is_owned) free(unread.data);
    return NULL;
}
