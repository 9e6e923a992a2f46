/* Operators: Cast CastLike BitCast */

static const char *NAME(const tensor *const *in, tensor *const *out) {
#ifdef OP_BitCast
    if (sizeof(I0) != sizeof(O0)) return "the two types have not the same number of bytes";
#endif
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
    const int64_t count = count_elements(in[0]);
#ifdef OP_BitCast
    memmove(out[0]->data, in[0]->data, (size_t)count * sizeof(O0));
#elif IS_FLOAT(I0) && !IS_FLOAT(O0) && !IS_BOOL(O0)
    for (int64_t i = 0; i < count; ++i) OUT(0)[i] = TRUNCATE(O0, LOWEST_O0, IN(0)[i]);
#else
    for (int64_t i = 0; i < count; ++i) OUT(0)[i] = (O0)IN(0)[i];
#endif
    return NULL;
}
