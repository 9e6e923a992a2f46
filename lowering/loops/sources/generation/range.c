/* Operators: Range */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    for (int64_t n = 0; n < INPUTS; ++n)
        if (!has_elements(in[n], 1)) return "an operand is no single number";
    const O0 start = *IN(0), limit = *IN(1), step = *IN(2);
    if (step == 0) return "the step is 0";
    const double steps = ceil(((double)limit - (double)start) / (double)step);
    const int64_t count = steps > 0 ? (int64_t)steps : 0;
    TRY(allocate(out[0], 1, &count, sizeof(O0)));
    O0 value = start;
    for (int64_t i = 0; i < count; ++i, value += step) OUT(0)[i] = value;
    return NULL;
}
