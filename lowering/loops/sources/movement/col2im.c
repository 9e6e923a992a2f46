/* Operators: Col2Im */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t axes = count_elements(in[1]);
    int64_t image[MAX_RANK], block[MAX_RANK], blocks[MAX_RANK], shape[MAX_RANK], strides[MAX_RANK];
    windows w[MAX_RANK];
    if (axes > MAX_RANK - 2) return "a tensor has too many axes";
    if (!has_elements(in[2], axes)) return "the block has another number of axes than the image";
    for (int64_t i = 0; i < axes; ++i) {
        image[i] = IN(1)[i];
        block[i] = IN(2)[i];
        if (block[i] < 1) return "a block has no elements";
        w[i] = WINDOWS(i, axes, image[i], block[i]);
        blocks[i] = count_windows(&w[i]);
    }
    const int64_t taps = product(axes, block), places = product(axes, blocks), channels = in[0]->shape[1] / taps;
    if (in[0]->rank != 3 || in[0]->shape[1] != channels * taps || in[0]->shape[2] != places)
        return "the columns do not fit the image";
    shape[0] = in[0]->shape[0];
    shape[1] = channels;
    memcpy(shape + 2, image, (size_t)axes * sizeof *shape);
    TRY(allocate(out[0], axes + 2, shape, sizeof(O0)));
    const int64_t plane = product(axes, image);
    strides_of(axes, image, strides);
    memset(out[0]->data, 0, (size_t)count_elements(out[0]) * sizeof(O0));
    for (int64_t c = 0; c < shape[0] * channels; ++c) {
        int64_t tap[MAX_RANK] = {0};
        for (int64_t t = 0; t < taps; ++t, advance(axes, block, tap)) {
            int64_t at[MAX_RANK] = {0};
            for (int64_t p = 0; p < places; ++p, advance(axes, blocks, at)) {
                int64_t to;
                if (find_place(axes, w, at, tap, strides, &to))
                    OUT(0)[c * plane + to] += IN(0)[(c * taps + t) * places + p];
            }
        }
    }
    return NULL;
}
