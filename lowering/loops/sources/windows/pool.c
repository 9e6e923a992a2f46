/* Operators: MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t axes = in[0]->rank - 2, *size = in[0]->shape + 2;
    int64_t kernel[MAX_RANK], shape[MAX_RANK];
    windows w[MAX_RANK];
    int64_t whole = 1; /* the taps of a window */
    if (axes < 0) return "the input has no batch and channels";
    for (int64_t i = 0; i < axes; ++i) {
#ifdef A_kernel_shape
        w[i] = WINDOWS(i, axes, size[i], A_kernel_shape[i]);
        pad_same(&w[i], A_auto_pad, w[i].taps, INT64_MIN); /* ONNX Runtime leaves the dilation out, and pads by less than 0 */
#else
        if (size[i] == 0) return "a plane has no elements";
        w[i] = (windows){size[i], size[i], 1, 1, 0, 0};
#endif
        int64_t seen = size[i] + w[i].before; /* taps behind lie beyond the map in every window */
#ifdef A_count_include_pad
        if (A_count_include_pad) seen += w[i].behind;
        whole *= w[i].taps;
#endif
        kernel[i] = MIN_OF(w[i].taps, (seen + w[i].dilation - 1) / w[i].dilation);
        const int64_t room = room_behind(&w[i]);
        if (room <= -w[i].stride) return "the window is larger than the input";
        shape[i + 2] = MAX_OF(1, count_windows(&w[i])); /* an only window may see a part of it */
#ifdef A_ceil_mode
        if (A_ceil_mode) {
            shape[i + 2] = (room + w[i].stride - 1) / w[i].stride + 1;
            if ((shape[i + 2] - 1) * w[i].stride >= size[i] + w[i].before) --shape[i + 2];
        }
#endif
    }
    shape[0] = in[0]->shape[0], shape[1] = in[0]->shape[1];
    if (WANTS(0)) TRY(allocate(out[0], axes + 2, shape, sizeof(O0)));
    if (WANTS(1)) TRY(allocate(out[1], axes + 2, shape, sizeof(O1)));
    const int64_t depth = product(axes, kernel), plane = product(axes, size), places = product(axes, shape + 2);
    int64_t strides[MAX_RANK], stored[MAX_RANK];
    strides_of(axes, size, strides);
    memcpy(stored, strides, sizeof stored);
#ifdef A_storage_order
    if (A_storage_order)
        for (int64_t i = 0, step = 1; i < axes; step *= size[i++]) stored[i] = step;
#endif
    for (int64_t c = 0; c < shape[0] * shape[1]; ++c) {
        const I0 *x = IN(0) + c * plane;
        int64_t at[MAX_RANK] = {0};
        for (int64_t p = 0; p < places; ++p, advance(axes, shape + 2, at)) {
            double sum = 0;
            int64_t counted = 0, best = -1, tap[MAX_RANK] = {0};
            I0 largest = LOWEST_I0;
            for (int64_t t = 0; t < depth; ++t, advance(axes, kernel, tap)) {
                int64_t from;
                const bool inside = find_place(axes, w, at, tap, strides, &from);
                bool counts = inside;
#ifdef A_count_include_pad
                for (int64_t i = 0; i < axes && A_count_include_pad; ++i) {
                    const int64_t place = at[i] * w[i].stride - w[i].before + tap[i] * w[i].dilation;
                    counts = (i == 0 || counts) && (!A_ceil_mode || place < size[i] + w[i].behind);
                }
#endif
                counted += counts;
                if (!inside) continue;
                const I0 y = x[from];
#if defined OP_MaxPool || defined OP_GlobalMaxPool
                if (best < 0 || y > largest || y != y) largest = y, find_place(axes, w, at, tap, stored, &best);
#elif defined OP_LpPool || defined OP_GlobalLpPool
                sum += pow(fabs((double)y), (double)A_p);
#else
                sum += (double)y;
#endif
            }
            const int64_t place = c * places + p;
#if defined OP_MaxPool || defined OP_GlobalMaxPool
            if (WANTS(0)) OUT(0)[place] = largest;
            if (WANTS(1)) OUT(1)[place] = (O1)(c * plane + best);
#elif defined OP_LpPool || defined OP_GlobalLpPool
            OUT(0)[place] = (O0)pow(sum, 1.0 / A_p);
#else
#ifdef A_count_include_pad
            if (A_count_include_pad && !A_ceil_mode) counted = whole;
#endif
            OUT(0)[place] = (O0)(sum / (double)counted);
#endif
            (void)sum, (void)largest, (void)counted, (void)best, (void)whole;
        }
    }
    return NULL;
}
