/* Operators: TfIdfVectorizer */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, length = in[0]->shape[rank - 1], rows = rank == 2 ? in[0]->shape[0] : 1;
    int64_t columns = 0, shape[2];
    for (int64_t i = 0; i < A_ngram_indexes_count; ++i) columns = MAX_OF(columns, A_ngram_indexes[i] + 1);
    shape[0] = rows, shape[1] = columns;
    TRY(allocate(out[0], rank, rank == 2 ? shape : shape + 1, sizeof(O0)));
    memset(out[0]->data, 0, (size_t)(rows * columns) * sizeof(O0));
    for (int64_t r = 0; r < rows; ++r) {
        int64_t number = 0;
        for (int64_t n = 1; n <= A_ngram_counts_count && n <= A_max_gram_length; ++n) {
            const int64_t first = A_ngram_counts[n - 1],
                          last = n < A_ngram_counts_count ? A_ngram_counts[n] : A_pool_int64s_count;
            for (int64_t p = first; p + n <= last; p += n, ++number) {
                if (n < A_min_gram_length) continue;
                for (int64_t skip = 1; skip <= (n == 1 ? 1 : A_max_skip_count + 1); ++skip)
                    for (int64_t start = 0; start + (n - 1) * skip < length; ++start) {
                        bool equal = true;
                        for (int64_t k = 0; k < n; ++k)
                            equal = equal && (int64_t)IN(0)[r * length + start + k * skip] == A_pool_int64s[p + k];
                        OUT(0)[r * columns + A_ngram_indexes[number]] += equal;
                    }
            }
        }
        number = 0;
        for (int64_t i = 0; i < A_ngram_indexes_count; ++i) {
            O0 *y = OUT(0) + r * columns + A_ngram_indexes[i];
            const O0 weight = (O0)ENTRY(A_weights, i, 1);
            if (strcmp(A_mode, "TF") == 0) continue;
            *y = strcmp(A_mode, "IDF") == 0 ? (*y > 0 ? weight : 0) : *y * weight;
        }
    }
    return NULL;
}
