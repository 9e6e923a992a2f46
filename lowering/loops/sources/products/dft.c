/* Operators: DFT STFT */

/* The cosines and sines of all angles, in pairs; NULL if there is no memory. */
static double *LOCAL(waves)(int64_t whole, bool inverse) {
    double *waves = malloc((size_t)(2 * whole + 1) * sizeof *waves);
    for (int64_t i = 0; waves != NULL && i < whole; ++i) {
        const double angle = (inverse ? 2 : -2) * 3.14159265358979323846 * (double)i / (double)whole;
        waves[2 * i] = cos(angle);
        waves[2 * i + 1] = sin(angle);
    }
    return waves;
}

/* One transform of `count` results from `length` numbers (complex: `parts` is 2), zeros behind them up to `whole`. */
static void LOCAL(transform)(const I0 *x, int64_t step, int64_t length, int64_t whole, int64_t parts,
                             const double *window, const double *waves, O0 *y, int64_t y_step, int64_t y_parts,
                             int64_t count, bool inverse, bool hermitian) {
    for (int64_t k = 0; k < count; ++k) {
        double real = 0, imaginary = 0;
        int64_t turn = 0;  /* i * k % whole */
        for (int64_t i = 0; i < whole; ++i, turn = turn + k < whole ? turn + k : turn + k - whole) {
            const bool mirrored = hermitian && i > whole / 2;
            const int64_t place = mirrored ? whole - i : i;
            if (place >= length) continue;
            const double c = waves[2 * turn], s = waves[2 * turn + 1];
            const double w = window ? window[i] : 1, a = w * (double)x[place * step];
            const double b = parts == 2 ? (mirrored ? -w : w) * (double)x[place * step + 1] : 0;
            real += a * c - b * s;
            imaginary += a * s + b * c;
        }
        y[k * y_step] = (O0)(inverse ? real / (double)whole : real);
        if (y_parts == 2) y[k * y_step + 1] = (O0)(inverse ? imaginary / (double)whole : imaginary);
    }
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
#ifdef OP_STFT
    if (rank != 2 && rank != 3) return "the signal has neither two axes nor three";
    const int64_t parts = rank == 3 ? in[0]->shape[2] : 1;  /* ONNX Runtime takes real numbers without their last axis */
#else
    const int64_t parts = in[0]->shape[rank - 1];
#endif
    int64_t shape[MAX_RANK];
    memcpy(shape, in[0]->shape, sizeof shape);
    if (parts != 1 && parts != 2) return "the last axis is neither of numbers nor of pairs";
#ifdef OP_DFT
    for (int64_t n = 1; n < INPUTS; ++n)
        if (HAS(n) && !has_elements(in[n], 1)) return "the length or the axis is no single number";
    const int64_t axis = normal_index(HAS(2) ? (int64_t)((const I2 *)in[2]->data)[0] : -2, rank);
    if (axis < 0 || axis == rank - 1) return "the axis does not exist";
    const bool back = A_inverse && A_onesided;
    const int64_t half = back ? 2 * (shape[axis] - 1) : shape[axis], whole = HAS(1) ? (int64_t)*IN(1) : half;
    if (whole < 0) return "a transform has fewer elements than none";
    const int64_t results = A_onesided && !A_inverse ? whole / 2 + 1 : whole, y_parts = back ? 1 : 2;
    shape[axis] = results;
    shape[rank - 1] = y_parts;
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t inner = product(rank - axis - 2, shape + axis + 1), outer = product(axis, shape),
                  length = in[0]->shape[axis];
    double *waves = LOCAL(waves)(whole, A_inverse);
    if (waves == NULL) return "out of memory";
    for (int64_t i = 0; i < outer * inner; ++i)
        LOCAL(transform)(IN(0) + (i / inner * length * inner + i % inner) * parts, inner * parts, length, whole,
                         parts, NULL, waves, OUT(0) + (i / inner * results * inner + i % inner) * y_parts,
                         inner * y_parts, y_parts, results, A_inverse, back);
    free(waves);
#else
    if (!has_elements(in[1], 1) || (HAS(3) && !has_elements(in[3], 1)))
        return "the step or the length of a frame is no single number";
    const int64_t step = (int64_t)*IN(1), signal = shape[1];
    const int64_t whole = HAS(3) ? (int64_t)((const I3 *)in[3]->data)[0] : HAS(2) ? count_elements(in[2]) : signal;
    if (step < 1 || whole < 1 || whole > signal) return "the frames or their step do not fit the signal";
    if (HAS(2) && !has_elements(in[2], whole)) return "the window is not as long as a frame";
    const int64_t frames = (signal - whole) / step + 1, results = A_onesided ? whole / 2 + 1 : whole;
    double *window = malloc((size_t)(whole + 1) * sizeof *window), *waves = LOCAL(waves)(whole, false);
    if (window == NULL || waves == NULL) {
        free(window);
        free(waves);
        return "out of memory";
    }
    for (int64_t i = 0; i < whole; ++i)
        window[i] = HAS(2) ? (double)((const I0 *)in[2]->data)[i] : 1;
    const char *problem = allocate(out[0], 4, (int64_t[]){shape[0], frames, results, 2}, sizeof(O0));
    for (int64_t i = 0; i < shape[0] * frames && !problem; ++i)
        LOCAL(transform)(IN(0) + (i / frames * signal + i % frames * step) * parts, parts, whole, whole, parts,
                         window, waves, OUT(0) + i * results * 2, 2, 2, results, false, false);
    free(window);
    free(waves);
    TRY(problem);
#endif
    return NULL;
}
