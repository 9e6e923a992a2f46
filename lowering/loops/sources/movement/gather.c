/* Operators: Gather ArrayFeatureExtractor */

static const char *NAME(const tensor *const *in, tensor *const *out) {
#ifdef OP_Gather
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank), indices = in[1]->rank;
#else
    const int64_t rank = in[0]->rank, axis = rank - 1, indices = 1;
#endif
    if (axis < 0) return "the axis does not exist";
    int64_t shape[MAX_RANK], total = rank - 1 + indices;
    if (total > MAX_RANK) return "a tensor has too many axes";
    memcpy(shape, in[0]->shape, (size_t)axis * sizeof *shape);
    memcpy(shape + axis, in[1]->shape, (size_t)indices * sizeof *shape);
    memcpy(shape + axis + indices, in[0]->shape + axis + 1, (size_t)(rank - axis - 1) * sizeof *shape);
#ifndef OP_Gather
    if (rank == 1)
        shape[0] = 1, shape[1] = count_elements(in[1]), total = 2;
    else
        shape[axis] = count_elements(in[1]);
#endif
    TRY(allocate(out[0], total, shape, sizeof(O0)));
    const int64_t outer = product(axis, in[0]->shape), extent = in[0]->shape[axis], picks = count_elements(in[1]);
    const int64_t inner = product(rank - axis - 1, in[0]->shape + axis + 1);
    for (int64_t k = 0; k < picks; ++k) {
        const int64_t place = normal_index((int64_t)IN(1)[k], extent);
        if (place < 0) return "an index is outside of its axis";
        for (int64_t i = 0; i < outer; ++i)
            memcpy(OUT(0) + (i * picks + k) * inner, IN(0) + (i * extent + place) * inner,
                   (size_t)inner * sizeof(O0));
    }
    return NULL;
}
