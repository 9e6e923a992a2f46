/* Operators: GatherND */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t batch = A_batch_dims, rank = in[0]->rank, last = in[1]->rank - 1, depth = in[1]->shape[last];
    if (batch + depth > rank) return "an index has more entries than axes";
    if (batch > last || memcmp(in[0]->shape, in[1]->shape, (size_t)batch * sizeof *in[0]->shape) != 0)
        return "the indices are of other batches";
    int64_t shape[MAX_RANK], strides[MAX_RANK];
    const int64_t inner_rank = rank - batch - depth;
    if (last + inner_rank > MAX_RANK) return "a tensor has too many axes";
    memcpy(shape, in[1]->shape, (size_t)last * sizeof *shape);
    memcpy(shape + last, in[0]->shape + batch + depth, (size_t)inner_rank * sizeof *shape);
    TRY(allocate(out[0], last + inner_rank, shape, sizeof(O0)));
    strides_of(rank, in[0]->shape, strides);
    const int64_t inner = product(inner_rank, shape + last), batches = product(batch, in[0]->shape);
    const int64_t picks = product(last - batch, in[1]->shape + batch),
                  whole = product(rank - batch, in[0]->shape + batch);
    for (int64_t i = 0; i < batches * picks; ++i) {
        int64_t from = i / picks * whole;
        for (int64_t k = 0; k < depth; ++k) {
            const int64_t place = normal_index((int64_t)IN(1)[i * depth + k], in[0]->shape[batch + k]);
            if (place < 0) return "an index is outside of its axis";
            from += place * strides[batch + k];
        }
        memcpy(OUT(0) + i * inner, IN(0) + from, (size_t)inner * sizeof(O0));
    }
    return NULL;
}
