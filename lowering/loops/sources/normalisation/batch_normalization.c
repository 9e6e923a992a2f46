/* Operators: BatchNormalization */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, channels = rank > 1 ? in[0]->shape[1] : 1, count = count_elements(in[0]);
    const int64_t plane = rank > 2 ? product(rank - 2, in[0]->shape + 2) : 1, each = channels ? count / channels : 0;
    const bool trains = A_training_mode;
    for (int64_t n = 1; n < 5; ++n)
        if (!has_shape(in[n], 1, &channels)) return "a scale, bias, mean or variance is not one number for each channel";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    if (WANTS(1)) TRY(allocate(out[1], 1, &channels, sizeof(O1)));
    if (WANTS(2)) TRY(allocate(out[2], 1, &channels, sizeof(O2)));
    for (int64_t c = 0; c < channels; ++c) {
        double mean = (double)((const I3 *)in[3]->data)[c], variance = (double)((const I4 *)in[4]->data)[c];
        const double old_mean = mean, old_variance = variance;
        if (trains) {
            mean = variance = 0;
            for (int64_t i = 0; i < each; ++i) mean += (double)IN(0)[(i / plane * channels + c) * plane + i % plane];
            mean /= (double)each;
            for (int64_t i = 0; i < each; ++i) {
                const double x = (double)IN(0)[(i / plane * channels + c) * plane + i % plane] - mean;
                variance += x * x;
            }
            variance /= (double)each;
        }
        const double momentum = (double)A_momentum;
        if (WANTS(1)) OUT(1)[c] = (O1)(old_mean * momentum + mean * (1 - momentum));
        if (WANTS(2)) OUT(2)[c] = (O2)(old_variance * momentum + variance * (1 - momentum));
        const double factor = (double)((const I1 *)in[1]->data)[c] / sqrt(variance + (double)A_epsilon);
        const double bias = (double)((const I2 *)in[2]->data)[c];
        for (int64_t i = 0; i < each; ++i) {
            const int64_t place = (i / plane * channels + c) * plane + i % plane;
            OUT(0)[place] = (O0)(((double)IN(0)[place] - mean) * factor + bias);
        }
    }
    return NULL;
}
