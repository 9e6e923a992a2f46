/* Operators: Col2Im */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t axes = count_elements(in[1]);
    int64_t image[MAX_RANK], block[MAX_RANK], blocks[MAX_RANK], shape[MAX_RANK], strides[MAX_RANK];
    int64_t dilation[MAX_RANK], stride[MAX_RANK], pad[MAX_RANK];
    for (int64_t i = 0; i < axes; ++i) {
        image[i] = IN(1)[i];
        block[i] = IN(2)[i];
        dilation[i] = stride[i] = 1;
        pad[i] = 0;
        int64_t behind = 0;
#ifdef A_dilations
        dilation[i] = A_dilations[i];
#endif
#ifdef A_strides
        stride[i] = A_strides[i];
#endif
#ifdef A_pads
        pad[i] = A_pads[i];
        behind = A_pads[i + axes];
#endif
        blocks[i] = (image[i] + pad[i] + behind - dilation[i] * (block[i] - 1) - 1) / stride[i] + 1;
    }
    const int64_t taps = product(axes, block), places = product(axes, blocks), channels = in[0]->shape[1] / taps;
    shape[0] = in[0]->shape[0];
    shape[1] = channels;
    memcpy(shape + 2, image, (size_t)axes * sizeof *shape);
    TRY(allocate(out[0], axes + 2, shape, sizeof(O0)));
    const int64_t plane = product(axes, image);
    if (in[0]->shape[2] != places) return "the columns do not fit the image";
    strides_of(axes, image, strides);
    memset(out[0]->data, 0, (size_t)count_elements(out[0]) * sizeof(O0));
    for (int64_t c = 0; c < shape[0] * channels; ++c) {
        int64_t tap[MAX_RANK] = {0};
        for (int64_t t = 0; t < taps; ++t, advance(axes, block, tap)) {
            int64_t at[MAX_RANK] = {0};
            for (int64_t p = 0; p < places; ++p, advance(axes, blocks, at)) {
                int64_t to = 0;
                bool inside = true;
                for (int64_t i = 0; i < axes; ++i) {
                    const int64_t place = at[i] * stride[i] + tap[i] * dilation[i] - pad[i];
                    inside = inside && place >= 0 && place < image[i];
                    to += place * strides[i];
                }
                if (inside) OUT(0)[c * plane + to] += IN(0)[(c * taps + t) * places + p];
            }
        }
    }
    return NULL;
}
