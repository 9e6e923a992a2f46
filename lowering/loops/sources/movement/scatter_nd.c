/* Operators: ScatterND */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank, last = in[1]->rank - 1, depth = in[1]->shape[last];
    if (depth > rank) return "an index has more entries than axes";
#ifdef A_reduction
    const char *reduction = A_reduction;
#else
    const char *reduction = "none";
#endif
    TRY(copy_tensor(out[0], in[0], sizeof(O0)));
    int64_t strides[MAX_RANK];
    strides_of(rank, in[0]->shape, strides);
    const int64_t inner = product(rank - depth, in[0]->shape + depth), picks = product(last, in[1]->shape);
    for (int64_t i = 0; i < picks; ++i) {
        O0 *to = OUT(0);
        for (int64_t k = 0; k < depth; ++k) {
            const int64_t place = normal_index((int64_t)IN(1)[i * depth + k], in[0]->shape[k]);
            if (place < 0) return "an index is outside of its axis";
            to += place * strides[k];
        }
        const O0 *update = (const O0 *)in[2]->data + i * inner;
        for (int64_t k = 0; k < inner; ++k) {
            if (reduction[0] == 'n')
                to[k] = update[k];
            else if (reduction[0] == 'a')
                to[k] = to[k] + update[k];
            else if (reduction[1] == 'u')
                to[k] = to[k] * update[k];
            else if (reduction[1] == 'a')
                to[k] = update[k] > to[k] || update[k] != update[k] ? update[k] : to[k];
            else
                to[k] = update[k] < to[k] || update[k] != update[k] ? update[k] : to[k];
        }
    }
    return NULL;
}
