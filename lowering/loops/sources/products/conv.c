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
    int64_t stride[MAX_RANK], dilation[MAX_RANK], before[MAX_RANK], behind[MAX_RANK], shape[MAX_RANK];
    if (axes < 0) return "the input has no batch and channels";
    for (int64_t i = 0; i < axes; ++i) {
        stride[i] = dilation[i] = 1, before[i] = behind[i] = 0;
#ifdef A_strides
        stride[i] = A_strides[i];
#endif
#ifdef A_dilations
        dilation[i] = A_dilations[i];
#endif
#ifdef A_pads
        before[i] = A_pads[i], behind[i] = A_pads[i + axes];
#endif
        const int64_t reach = dilation[i] * (taps[i] - 1) + 1;
#ifdef OP_ConvTranspose
        int64_t further = 0;
#ifdef A_output_padding
        further = A_output_padding[i];
#endif
        shape[i + 2] = stride[i] * (size[i] - 1) + further + reach - before[i] - behind[i];
#ifdef A_output_shape
        const int64_t whole = shape[i + 2] + before[i] + behind[i],
                      total = MAX_OF(0, whole - A_output_shape[i + A_output_shape_count - axes]);
        shape[i + 2] = A_output_shape[i + A_output_shape_count - axes];
        before[i] = strcmp(A_auto_pad, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
#else
        if (strncmp(A_auto_pad, "SAME", 4) == 0) {
            const int64_t total = MAX_OF(0, stride[i] * (size[i] - 1) + further + reach - size[i] * stride[i]);
            shape[i + 2] = size[i] * stride[i];
            before[i] = strcmp(A_auto_pad, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
        }
#endif
#else
#ifdef A_auto_pad
        if (strncmp(A_auto_pad, "SAME", 4) == 0) {
            const int64_t total =
                MAX_OF(0, ((size[i] + stride[i] - 1) / stride[i] - 1) * stride[i] + reach - size[i]);
            before[i] = strcmp(A_auto_pad, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
            behind[i] = total - before[i];
        }
#endif
        const int64_t room = size[i] + before[i] + behind[i] - reach;
        shape[i + 2] = room < 0 ? 0 : room / stride[i] + 1;
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
                int64_t from = 0;
                bool inside = true;
#ifdef OP_DeformConv
                const int64_t offsets = A_offset_group, n = nf / features;
                for (int64_t c = 0; c < each; ++c) {
                    const int64_t og = (group * each + c) / (channels / offsets);
                    const O0 *shift = (const O0 *)in[2]->data + ((n * offsets + og) * depth + t) * 2 * places + p;
                    const O0 y = (O0)(at[0] * stride[0] - before[0] + tap[0] * dilation[0]) + shift[0];
                    const O0 z = (O0)(at[1] * stride[1] - before[1] + tap[1] * dilation[1]) + shift[places];
                    const O0 mask =
                        HAS(4) ? ((const O0 *)in[4]->data)[((n * offsets + og) * depth + t) * places + p] : 1;
                    sum += mask * LOCAL(sample)(x + c * plane, size[0], size[1], y, z) *
                           ((const O0 *)in[1]->data)[(f * each + c) * depth + t];
                }
                (void)from, (void)inside;
#else
                for (int64_t i = 0; i < axes; ++i) {
#ifdef OP_ConvTranspose
                    const int64_t spread = at[i] + before[i] - tap[i] * dilation[i], place = spread / stride[i];
                    inside = inside && spread >= 0 && spread % stride[i] == 0 && place < size[i];
#else
                    const int64_t place = at[i] * stride[i] - before[i] + tap[i] * dilation[i];
                    inside = inside && place >= 0 && place < size[i];
#endif
                    from += place * strides[i];
                }
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
