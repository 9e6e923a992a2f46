/* Operators: ReverseSequence */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
    if (!has_shape(in[1], 1, in[0]->shape + A_batch_axis)) return "there is not one length for each sequence";
    for (int64_t i = 0; i < count_elements(in[1]); ++i)
        if (IN(1)[i] < 0 || IN(1)[i] > in[0]->shape[A_time_axis]) return "a sequence is longer than its axis";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    const int64_t steps = in[0]->shape[1], run = product(rank - 2, in[0]->shape + 2);
    const int64_t stride = A_time_axis == 0 ? steps : 1; /* one of both axes is that of time, the other that of sequences */
    for (int64_t i = 0; i < in[0]->shape[0] * steps; ++i) {
        const int64_t time = A_time_axis == 0 ? i / steps : i % steps;
        const int64_t length = (int64_t)IN(1)[A_time_axis == 0 ? i % steps : i / steps];
        const int64_t moved = time < length ? length - 1 - 2 * time : 0;
        memcpy(OUT(0) + i * run, IN(0) + (i + moved * stride) * run, (size_t)run * sizeof(O0));
    }
    return NULL;
}
