/* Operators: Conv ConvTranspose DeformConv */
#if IS_FLOAT(O0)
typedef O0 LOCAL(number);
#else
typedef int64_t LOCAL(number);
#endif

#ifdef OP_DeformConv
/* The value between four pixels; those outside are zero. */
static inline O0 LOCAL(sample)(const O0 *plane, int64_t height, int64_t width, O0 y, O0 x) {
    const O0 top = floor(y), left = floor(x);
    O0 sum = 0;
    for (int k = 0; k < 4; ++k) {
        const O0 row = top + (k >> 1), column = left + (k & 1);
        if (!(row >= 0 && row < height && column >= 0 && column < width)) continue;
        sum += plane[(int64_t)row * width + (int64_t)column] * (1 - fabs(y - row)) * (1 - fabs(x - column));
    }
    return sum;
}
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t axes = in[0]->rank - 2, *size = in[0]->shape + 2, *taps = in[1]->shape + 2;
    int64_t shape[MAX_RANK];
    windows w[MAX_RANK];
    if (axes < 0) return "the input has no batch and channels";
    if (in[1]->rank != axes + 2) return "the weights have another number of axes than the input";
    for (int64_t i = 0; i < A_kernel_shape_count; ++i)
        if (i >= axes || taps[i] != A_kernel_shape[i]) return "the weights have another kernel than the operator says";
    for (int64_t i = 0; i < axes; ++i) {
        w[i] = WINDOWS(i, axes, size[i], taps[i]);
#ifdef OP_ConvTranspose
        const int64_t whole = w[i].stride * (size[i] - 1) + ENTRY(A_output_padding, i, 0) + reach_of(&w[i]);
        const bool is_same = strncmp(A_auto_pad, "SAME", 4) == 0;
        shape[i + 2] = A_output_shape_count ? A_output_shape[i + A_output_shape_count - axes]
                       : is_same            ? size[i] * w[i].stride
                                            : whole - w[i].before - w[i].behind;
        if (A_output_shape_count || is_same) share_padding(&w[i], MAX_OF(0, whole - shape[i + 2]), A_auto_pad);
#else
#ifdef A_auto_pad
        pad_same(&w[i], A_auto_pad, reach_of(&w[i]), 0);
#endif
        if (room_behind(&w[i]) < 0) return "the window is larger than the input";
        shape[i + 2] = count_windows(&w[i]);
#endif
    }
    const int64_t channels = in[0]->shape[1], groups = A_group, each = channels / groups;
    shape[0] = in[0]->shape[0];
#ifdef OP_ConvTranspose
    const int64_t features = in[1]->shape[1] * groups;
    if (in[1]->shape[0] != channels) return "the weights have other channels than the input";
#else
    const int64_t features = in[1]->shape[0];
    if (in[1]->shape[1] != each) return "the weights have other channels than the input";
#endif
    if (channels % groups || features % groups) return "the channels do not divide into groups";
#ifdef OP_DeformConv
    if (axes != 2) return "the input is no image";
    if (channels % A_offset_group) return "the channels do not divide into groups of offsets";
    const tensor *bias = in[3], *moved[] = {in[2], in[4]};
    int64_t offsets_shape[] = {shape[0], A_offset_group * product(axes, taps), shape[2], shape[3]};
    for (int n = 1; n >= 0; --n, offsets_shape[1] *= 2)
        if (moved[n] && !has_shape(moved[n], 4, offsets_shape)) return "the offsets or the mask do not fit the result";
#else
    const tensor *bias = in[2];
#endif
    if (bias && !has_shape(bias, 1, &features)) return "the bias is not one number for each feature";
    shape[1] = features;
    TRY(allocate(out[0], axes + 2, shape, sizeof(O0)));
    const int64_t depth = product(axes, taps), plane = product(axes, size), places = product(axes, shape + 2);
    const int64_t per_group = features / groups;
    int64_t strides[MAX_RANK];
    strides_of(axes, size, strides);
    O0 *result = OUT(0);
    for (int64_t nf = 0; nf < shape[0] * features; ++nf) {
        const int64_t f = nf % features, group = f / per_group;
        const I0 *x = IN(0) + (nf / features * channels + group * each) * plane;
        int64_t at[MAX_RANK] = {0};
        for (int64_t p = 0; p < places; ++p, advance(axes, shape + 2, at)) {
            LOCAL(number) sum = 0;
            int64_t tap[MAX_RANK] = {0};
            for (int64_t t = 0; t < depth; ++t, advance(axes, taps, tap)) {
#ifdef OP_DeformConv
                const int64_t offsets = A_offset_group, n = nf / features;
                for (int64_t c = 0; c < each; ++c) {
                    const int64_t og = (group * each + c) / (channels / offsets);
                    const O0 *shift = (const O0 *)in[2]->data + ((n * offsets + og) * depth + t) * 2 * places + p;
                    const O0 y = (O0)(at[0] * w[0].stride - w[0].before + tap[0] * w[0].dilation) + shift[0];
                    const O0 z = (O0)(at[1] * w[1].stride - w[1].before + tap[1] * w[1].dilation) + shift[places];
                    const O0 mask =
                        HAS(4) ? ((const O0 *)in[4]->data)[((n * offsets + og) * depth + t) * places + p] : 1;
                    sum += mask * LOCAL(sample)(x + c * plane, size[0], size[1], y, z) *
                           ((const O0 *)in[1]->data)[(f * each + c) * depth + t];
                }
#else
                int64_t from = 0;
#ifdef OP_ConvTranspose
                bool inside = true;
                for (int64_t i = 0; i < axes; ++i) {
                    const int64_t spread = at[i] + w[i].before - tap[i] * w[i].dilation, place = spread / w[i].stride;
                    inside = inside && spread >= 0 && spread % w[i].stride == 0 && place < size[i];
                    from += place * strides[i];
                }
#else
                const bool inside = find_place(axes, w, at, tap, strides, &from);
#endif
                if (!inside) continue;
                for (int64_t c = 0; c < each; ++c) {
#ifdef OP_ConvTranspose
                    const int64_t place = ((group * each + c) * per_group + f % per_group) * depth + t;
#else
                    const int64_t place = (f * each + c) * depth + t;
#endif
                    LOCAL(number) a = (LOCAL(number))x[c * plane + from];
                    LOCAL(number) b = (LOCAL(number))((const I1 *)in[1]->data)[place];
                    sum += a * b;
                }
#endif
            }
#if defined OP_DeformConv
            *result++ = sum + (HAS(3) ? ((const O0 *)in[3]->data)[f] : 0);
#else
            *result++ = (O0)sum + (HAS(2) ? ((const O0 *)in[2]->data)[f] : 0);
#endif
        }
    }
    return NULL;
}
