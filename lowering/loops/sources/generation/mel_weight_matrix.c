/* Operators: MelWeightMatrix */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    for (int64_t n = 0; n < INPUTS; ++n)
        if (!has_elements(in[n], 1)) return "an operand is no single number";
    const int64_t bins = (int64_t)*IN(0), spectrum = (int64_t)*IN(1) / 2 + 1;
    const double length = (double)*IN(1), rate = (double)*IN(2), low = (double)*IN(3), high = (double)*IN(4);
    const double from = 2595 * log10(1 + low / 700), to = 2595 * log10(1 + high / 700),
                 step = (to - from) / (double)(bins + 2);
    TRY(allocate(out[0], 2, (int64_t[]){spectrum, bins}, sizeof(O0)));
    memset(out[0]->data, 0, (size_t)(spectrum * bins) * sizeof(O0));
    for (int64_t b = 0; b < bins; ++b) {
        int64_t place[3];
        for (int64_t k = 0; k < 3; ++k)
            place[k] =
                (int64_t)floor((length + 1) * (700 * (pow(10.0, (from + step * (double)(b + k)) / 2595) - 1)) / rate);
        for (int64_t i = MAX_OF(0, place[0]); i <= place[1] && place[0] < place[1] && i < spectrum; ++i)
            OUT(0)[i * bins + b] = (O0)((double)(i - place[0]) / (double)(place[1] - place[0]));
        if (place[1] == place[0] && place[1] >= 0 && place[1] < spectrum) OUT(0)[place[1] * bins + b] = 1;
        for (int64_t i = MAX_OF(0, place[1]); i < place[2] && i < spectrum; ++i)
            OUT(0)[i * bins + b] = (O0)((double)(place[2] - i) / (double)(place[2] - place[1]));
    }
    return NULL;
}
