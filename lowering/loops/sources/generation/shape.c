/* Operators: Shape Size */

static const char *NAME(const tensor *const *in, tensor *const *out) {
#ifdef OP_Size
    TRY(allocate(out[0], 0, NULL, sizeof(O0)));
    *OUT(0) = count_elements(in[0]);
#else
    const int64_t rank = in[0]->rank;
    const int64_t first = clamp(A_start < 0 ? A_start + rank : A_start, 0, rank);
    const int64_t last = A_end == ABSENT ? rank : clamp(A_end < 0 ? A_end + rank : A_end, 0, rank);
    const int64_t count = MAX_OF(0, last - first);
    TRY(allocate(out[0], 1, &count, sizeof(O0)));
    memcpy(out[0]->data, in[0]->shape + first, (size_t)count * sizeof(O0));
#endif
    return NULL;
}
