/* Operators: Det */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, n = in[0]->shape[rank - 1];
    if (in[0]->shape[rank - 2] != n) return "the matrix is not square";
    TRY(allocate(out[0], rank - 2, in[0]->shape, sizeof(O0)));
    double *m = malloc((size_t)(n * n + 1) * sizeof *m);
    if (m == NULL) return "out of memory";
    const int64_t count = count_elements(out[0]);
    for (int64_t b = 0; b < count; ++b) {
        double result = 1;
        for (int64_t i = 0; i < n * n; ++i) m[i] = (double)IN(0)[b * n * n + i];
        for (int64_t k = 0; k < n; ++k) {
            int64_t best = k;
            for (int64_t i = k + 1; i < n; ++i)
                if (fabs(m[i * n + k]) > fabs(m[best * n + k])) best = i;
            for (int64_t j = 0; j < n && best != k; ++j) {
                const double swapped = m[k * n + j];
                m[k * n + j] = m[best * n + j];
                m[best * n + j] = swapped;
            }
            if (best != k) result = -result;
            result *= m[k * n + k];
            for (int64_t i = k + 1; i < n && m[k * n + k] != 0; ++i) {
                const double factor = m[i * n + k] / m[k * n + k];
                for (int64_t j = k; j < n; ++j) m[i * n + j] -= factor * m[k * n + j];
            }
        }
        OUT(0)[b] = (O0)result;
    }
    free(m);
    return NULL;
}
