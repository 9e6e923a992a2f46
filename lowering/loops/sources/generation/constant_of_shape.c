/* Operators: ConstantOfShape */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t shape[MAX_RANK];
    const int64_t rank = in[0]->shape[0];
    if (rank > MAX_RANK) return "a tensor has too many axes";
    for (int64_t i = 0; i < rank; ++i) shape[i] = IN(0)[i];
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t count = product(rank, shape);
    for (int64_t i = 0; i < count; ++i)
#ifdef A_value
        OUT(0)[i] = A_value[0];
#else
        OUT(0)[i] = 0;
#endif
    return NULL;
}
