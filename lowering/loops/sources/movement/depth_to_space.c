/* Operators: DepthToSpace SpaceToDepth */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t *from = in[0]->shape, b = A_blocksize;
#ifdef OP_DepthToSpace
    const int64_t shape[] = {from[0], from[1] / (b * b), from[2] * b, from[3] * b}, c = shape[1], h = from[2],
                  w = from[3];
#else
    const int64_t shape[] = {from[0], from[1] * b * b, from[2] / b, from[3] / b}, c = from[1], h = shape[2],
                  w = shape[3];
#endif
    if (product(4, shape) != count_elements(in[0])) return "the axes do not divide into blocks";
    const bool by_column = strcmp(A_mode, "CRD") == 0;
    TRY(allocate(out[0], 4, shape, sizeof(O0)));
    for (int64_t n = 0; n < from[0]; ++n)
        for (int64_t k = 0; k < c * b * b; ++k)
            for (int64_t y = 0; y < h; ++y)
                for (int64_t x = 0; x < w; ++x) {
                    const int64_t channel = by_column ? k / (b * b) : k % c, block = by_column ? k % (b * b) : k / c;
                    const int64_t deep = ((n * c * b * b + k) * h + y) * w + x;
                    const int64_t wide = ((n * c + channel) * h * b + y * b + block / b) * w * b + x * b + block % b;
#ifdef OP_DepthToSpace
                    OUT(0)[wide] = IN(0)[deep];
#else
                    OUT(0)[deep] = IN(0)[wide];
#endif
                }
    return NULL;
}
