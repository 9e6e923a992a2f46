/* Operators: Clip */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    for (int64_t n = 1; n < 3; ++n)
        if (HAS(n) && !has_elements(in[n], 1)) return "a bound is no single number";
    const O0 low = HAS(1) ? *(const O0 *)in[1]->data : LOWEST_O0,
             high = HAS(2) ? *(const O0 *)in[2]->data : HIGHEST_O0;
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i) {
        const O0 x = IN(0)[i], y = x < low ? low : x;
        OUT(0)[i] = y > high ? high : y;
    }
    return NULL;
}
