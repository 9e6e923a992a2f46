/* Operators: ReverseSequence */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
    if (!has_shape(in[1], 1, in[0]->shape + A_batch_axis)) return "there is not one length for each sequence";
    for (int64_t i = 0; i < count_elements(in[1]); ++i)
        if (IN(1)[i] < 0 || IN(1)[i] > in[0]->shape[A_time_axis]) return "a sequence is longer than its axis";
    TRY(allocate(out[0], rank, in[0]->shape, sizeof(O0)));
    int64_t strides[MAX_RANK], index[MAX_RANK] = {0};
    strides_of(rank, in[0]->shape, strides);
    const int64_t count = count_elements(in[0]);
    for (int64_t i = 0; i < count; ++i, advance(rank, in[0]->shape, index)) {
        const int64_t length = (int64_t)IN(1)[index[A_batch_axis]], time = index[A_time_axis];
        const int64_t moved = time < length ? length - 1 - 2 * time : 0;
        OUT(0)[i] = IN(0)[i + moved * strides[A_time_axis]];
    }
    return NULL;
}
