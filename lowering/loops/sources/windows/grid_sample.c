/* Operators: GridSample */

#define MOST_TAPS_ 64 /* 4 by 4 by 4 of a cubic sample */

static inline double LOCAL(reflect)(double x, double low, double high) {
    const double range = high - low, away = x < low ? low - x : x > high ? x - high : 0;
    if (away == 0 || range <= 0) return range <= 0 ? 0 : x;
    const double turns = floor(away / range), rest = away - turns * range;
    return (x < low) == (fmod(turns, 2) == 0) ? low + rest : high - rest;
}

static inline double LOCAL(cubic)(double d) {
    d = fabs(d);
    if (d <= 1) return (1.25 * d - 2.25) * d * d + 1;
    return d < 2 ? ((-0.75 * d + 3.75) * d - 6) * d + 3 : 0;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t axes = in[0]->rank - 2, *size = in[0]->shape + 2, channels = in[0]->shape[1];
    const bool nearest = A_mode[0] == 'n', cubic = strstr(A_mode, "cubic") != NULL;
    const bool zeros = A_padding_mode[0] == 'z', border = A_padding_mode[0] == 'b';
    if (axes > 3) return "more than three axes";
    if (in[1]->rank != axes + 2 || in[1]->shape[0] != in[0]->shape[0] || in[1]->shape[axes + 1] != axes)
        return "the grid does not give places in all images";
    int64_t shape[MAX_RANK], strides[MAX_RANK], taps[MAX_RANK];
    shape[0] = in[0]->shape[0], shape[1] = channels;
    memcpy(shape + 2, in[1]->shape + 1, (size_t)axes * sizeof *shape);
    TRY(allocate(out[0], axes + 2, shape, sizeof(O0)));
    strides_of(axes, size, strides);
    const int64_t plane = product(axes, size), places = product(axes, shape + 2);
    if (plane == 0 && shape[0] * places > 0) return "the images have no elements";
    for (int64_t i = 0; i < axes; ++i) taps[i] = nearest ? 1 : cubic ? 4 : 2;
    int64_t places_of[MOST_TAPS_];
    double weights[MOST_TAPS_];
    for (int64_t np = 0; np < shape[0] * places; ++np) {
        int64_t first[MAX_RANK];
        double at[MAX_RANK];
        for (int64_t i = 0; i < axes; ++i) {
            const double said = (double)IN(1)[np * axes + axes - 1 - i], extent = (double)size[i];
            const double x = fabs(said) < 0x1p61 ? said : -1; /* no number and no size: as in ONNX Runtime */
            const double low = A_align_corners ? 0 : -0.5, high = A_align_corners ? extent - 1 : extent - 0.5;
            at[i] = A_align_corners ? (x + 1) / 2 * (extent - 1) : ((x + 1) * extent - 1) / 2;
            if (nearest) at[i] = rint(at[i]);
            if (at[i] < low || at[i] > high) {
                if (border && !cubic) /* of cubic samples, each pixel is moved to the border by itself, as in PyTorch */
                    at[i] = at[i] < 0 ? 0 : at[i] > extent - 1 ? extent - 1 : at[i];
                else if (!border && !zeros)
                    at[i] = LOCAL(reflect)(at[i], low, high);
            }
            if (!(at[i] > -1e15 && at[i] < 1e15)) at[i] = -1e15;
            first[i] = nearest ? (int64_t)rint(at[i]) : (int64_t)floor(at[i]) - (cubic ? 1 : 0);
        }
        int64_t tap[MAX_RANK] = {0}, count = 0;  /* what a channel is the sum of: places inside, and their weights */
        do {
            double weight = 1;
            int64_t from = 0;
            bool inside = true;
            for (int64_t i = 0; i < axes; ++i) {
                int64_t place = first[i] + tap[i];
                const double away = fabs(at[i] - (double)place);
                weight *= nearest ? 1 : cubic ? LOCAL(cubic)(away) : 1 - away;
                if (border)
                    place = clamp(place, 0, size[i] - 1);
                else if (!zeros && (place < 0 || place >= size[i])) {
                    const double low = A_align_corners ? 0 : -0.5,
                                 high = (double)size[i] - (A_align_corners ? 1 : 0.5);
                    place = clamp((int64_t)rint(LOCAL(reflect)((double)place, low, high)), 0, size[i] - 1);
                }
                inside = inside && place >= 0 && place < size[i];
                from += place * strides[i];
            }
            if (inside) places_of[count] = from, weights[count++] = weight;
        } while (advance(axes, taps, tap));
        const I0 *x = IN(0) + np / places * channels * plane;
        O0 *y = OUT(0) + np / places * channels * places + np % places;
        for (int64_t c = 0; c < channels; ++c, x += plane, y += places) {
            double sum = 0;
            for (int64_t i = 0; i < count; ++i) sum += weights[i] * (double)x[places_of[i]];
            *y = (O0)sum;
        }
    }
    return NULL;
}
