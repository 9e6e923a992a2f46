/* Operators: LRN */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, channels = in[0]->shape[1], plane = product(rank - 2, in[0]->shape + 2);
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]), below = (A_size - 1) / 2, above = A_size / 2;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t c = i / plane % channels;
        double squares = 0;
        for (int64_t k = MAX_OF(0, c - below); k <= MIN_OF(channels - 1, c + above); ++k) {
            const double x = (double)IN(0)[i + (k - c) * plane];
            squares += x * x;
        }
        OUT(0)[i] = (O0)((double)IN(0)[i] / pow((double)A_bias + (double)A_alpha / A_size * squares, (double)A_beta));
    }
    return NULL;
}
