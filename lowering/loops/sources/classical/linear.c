/* Operators: LinearRegressor LinearClassifier SVMRegressor SVMClassifier */

#if defined(OP_SVMRegressor) || defined(OP_SVMClassifier)
#define LANES 16 /* support vectors side by side: their sums are in vectors */

/* exp of a number up to 0, in steps that are the same for all lanes: x = n log 2 + r, and a polynomial of r. */
static inline float LOCAL(exponential)(float x) {
    const float shift = 12583039.0f; /* 1.5 * 2^23 + 127: what is added to it is rounded, and lies in its last bits */
    const float least = -87.0f, bounded = x < least ? least : x; /* NaN stays */
    const float shifted = bounded * 1.44269504f + shift, n = shifted - shift;
    const float r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
    const float tail = ((0.00138201355f * r + 0.00836868584f) * r + 0.0416682735f) * r + 0.166665211f;
    union { float number; uint32_t bits; } scale = {.number = shifted};
    scale.bits <<= 23;
    return (((tail * r + 0.49999994f) * r + 1.0f) * r + 1.0f) * scale.number;
}

/* The kernel of a row and a support vector, from their product or squared distance. */
static inline float LOCAL(kernel)(float sum) {
    const float gamma = A_kernel_params_count > 0 ? A_kernel_params[0] : 0;
    const float start = A_kernel_params_count > 1 ? A_kernel_params[1] : 0;
    const float degree = A_kernel_params_count > 2 ? A_kernel_params[2] : 0;
    if (strcmp(A_kernel_type, "RBF") == 0) return gamma < 0 ? expf(-gamma * sum) : LOCAL(exponential)(-gamma * sum);
    if (strcmp(A_kernel_type, "POLY") == 0) return powf(gamma * sum + start, degree);
    if (strcmp(A_kernel_type, "SIGMOID") == 0) return tanhf(gamma * sum + start);
    return sum;
}

/* The kernels of a row and LANES support vectors, from the first one on. */
static inline void LOCAL(evaluate)(const I0 *x, int64_t columns, int64_t first, float *kernels) {
    float sums[LANES] = {0};
    for (int64_t i = 0; i < columns; ++i) {
        const float entry = (float)x[i], *vectors = A_support_vectors + i * A_stride + first;
        for (int64_t k = 0; k < LANES; ++k) {
            const float away = entry - vectors[k];
            sums[k] += strcmp(A_kernel_type, "RBF") == 0 ? away * away : entry * vectors[k];
        }
    }
    for (int64_t k = 0; k < LANES; ++k) kernels[k] = LOCAL(kernel)(sums[k]);
}
#endif

#ifdef OP_SVMRegressor
static float LOCAL(regress)(const I0 *x, int64_t columns) {
    float score = A_rho[0];
    for (int64_t first = 0; first < A_n_supports; first += LANES) {
        float kernels[LANES];
        LOCAL(evaluate)(x, columns, first, kernels);
        for (int64_t k = 0; k < MIN_OF(LANES, A_n_supports - first); ++k) score += A_coefficients[first + k] * kernels[k];
    }
    if (A_n_supports == 0)
        for (int64_t i = 0; i < columns; ++i) score += A_coefficients[i] * (float)x[i];
    return A_one_class ? (score > 0 ? 1 : -1) : score;
}
#endif

#ifdef OP_SVMClassifier
static inline double LOCAL(weigh)(const float *coefficients, const float *kernels, int64_t count) {
    double sums[LANES / 2] = {0}, sum = 0;
    int64_t m = 0;
    for (; m + LANES / 2 <= count; m += LANES / 2)
        for (int64_t k = 0; k < LANES / 2; ++k) sums[k] += (double)coefficients[m + k] * kernels[m + k];
    for (; m < count; ++m) sum += (double)coefficients[m] * kernels[m];
    for (int64_t k = 0; k < LANES / 2; ++k) sum += sums[k];
    return sum;
}

/* Scores of all pairs of classes; returns the class that most pairs decide for. The coefficients of a class against
 * another one lie in the row of the other, which is one less for those behind it. */
static int64_t LOCAL(vote)(const I0 *x, int64_t columns, float *scores) {
    float kernels[A_stride];
    for (int64_t first = 0; first < A_n_supports; first += LANES) LOCAL(evaluate)(x, columns, first, kernels + first);
    int64_t votes[A_classes], pair = 0, start = 0, best = 0;
    for (int64_t i = 0; i < A_classes; ++i) votes[i] = 0;
    for (int64_t i = 0; i < A_classes; start += A_vectors_per_class[i++]) {
        int64_t other = start + A_vectors_per_class[i];
        for (int64_t j = i + 1; j < A_classes; other += A_vectors_per_class[j++], ++pair) {
            const float *against_j = A_coefficients + (j - 1) * A_n_supports, *against_i = A_coefficients + i * A_n_supports;
            double sum = LOCAL(weigh)(against_j + start, kernels + start, A_vectors_per_class[i]);
            sum += LOCAL(weigh)(against_i + other, kernels + other, A_vectors_per_class[j]) + A_rho[pair];
            scores[pair] = (float)sum;
            ++votes[sum > 0 ? i : j];
        }
    }
    for (int64_t i = 1; i < A_classes; ++i) best = votes[i] > votes[best] ? i : best;
    return best;
}

/* Probabilities of classes from those of pairs: Wu, Lin and Weng, "Probability estimates for multi-class classification
 * by pairwise coupling", algorithm 2. */
static void LOCAL(couple)(const float *scores, float *p) {
    const int64_t n = A_classes;
    float among[n * n], q[n * n], qp[n];
    for (int64_t i = 0, pair = 0; i < n; ++i)
        for (int64_t j = i + 1; j < n; ++j, ++pair) {
            const float value = scores[pair] * A_prob_a[pair] + A_prob_b[pair], part = 1 / (1 + expf(-fabsf(value)));
            const float wins = MIN_OF(MAX_OF(value < 0 ? part : 1 - part, 1e-7f), 1 - 1e-7f);
            among[i * n + j] = wins, among[j * n + i] = 1 - wins;
        }
    for (int64_t i = 0; i < n; ++i) {
        q[i * n + i] = 0, p[i] = 1 / (float)n;
        for (int64_t j = 0; j < n; ++j)
            if (j != i) {
                q[i * n + i] += among[j * n + i] * among[j * n + i];
                q[i * n + j] = -among[j * n + i] * among[i * n + j];
            }
    }
    for (int turn = 0; turn < 100; ++turn) {
        float whole = 0, most = 0;
        for (int64_t i = 0; i < n; ++i) {
            qp[i] = 0;
            for (int64_t j = 0; j < n; ++j) qp[i] += q[i * n + j] * p[j];
            whole += p[i] * qp[i];
        }
        for (int64_t i = 0; i < n; ++i) most = MAX_OF(most, fabsf(qp[i] - whole));
        if (most < 0.005f / (float)n) return;
        for (int64_t i = 0; i < n; ++i) {
            const float change = (whole - qp[i]) / q[i * n + i], scale = 1 + change;
            p[i] += change;
            whole = (whole + change * (change * q[i * n + i] + 2 * qp[i])) / scale / scale;
            for (int64_t j = 0; j < n; ++j) {
                qp[j] = (qp[j] + change * q[i * n + j]) / scale;
                p[j] /= scale;
            }
        }
    }
}

/* The scores of a row: probabilities, one for each pair, or of two classes one and its opposite. */
static int64_t LOCAL(classify)(const I0 *x, int64_t columns, float *y) {
    float scores[A_classes * (A_classes - 1) / 2];
    const int64_t best = LOCAL(vote)(x, columns, scores);
    if (A_prob_a_count > 0) {
        LOCAL(couple)(scores, y);
    } else if (A_classes == 2) {
        y[0] = -scores[0], y[1] = scores[0];
    } else {
        memcpy(y, scores, sizeof scores);
    }
    return best;
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
#if OUTPUTS > 1
    if (out[0]) TRY(allocate(out[0], 1, &rows, sizeof(O0)));
#endif
    for (int64_t r = 0; r < rows; ++r, y += results) {
        const I0 *x = IN(0) + r * columns;
#ifdef OP_SVMRegressor
        y[0] = LOCAL(regress)(x, columns);
#elif defined(OP_SVMClassifier)
        const int64_t best = LOCAL(classify)(x, columns, y);
        if (out[0]) OUT(0)[r] = A_classlabels_ints[best];
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
