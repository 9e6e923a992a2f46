/* Operators: Einsum */

/* An axis of the sum by its letter; the axes of an ellipsis are numbered from the last one, in capital order. */
#define LETTERS_ 128
#define DOTS_ 20

static const char *LOCAL(labels)(const char **text, int64_t rank, int *labels) {
    int64_t letters = 0, i = 0;
    for (const char *p = *text; *p && *p != ',' && *p != '-'; ++p) letters += *p != ' ' && *p != '.';
    const char *p = *text;
    for (; *p && *p != ',' && *p != '-'; ++p) {
        if (*p == ' ') continue;
        if (*p == '.') {
            for (int64_t k = rank - letters; k > 0; --k) labels[i++] = (int)(DOTS_ - k);
            p += 2;
        } else if (i >= rank) {
            return "the equation has more letters than an operand has axes";
        } else {
            labels[i++] = *p;
        }
    }
    *text = *p ? p + 1 : p;
    return i == rank ? NULL : "the equation does not name every axis";
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const char *text = A_equation, *arrow = strstr(A_equation, "->");
    int labels[INPUTS][MAX_RANK], order[MAX_RANK], results = 0, seen[LETTERS_] = {0};
    int64_t extents[LETTERS_], axes = 0, extent[MAX_RANK * INPUTS], strides[INPUTS][MAX_RANK * INPUTS], most_dots = 0;
    memset(strides, 0, sizeof strides);
    for (int i = 0; i < LETTERS_; ++i) extents[i] = 1;
    for (int n = 0; n < INPUTS; ++n) {
        TRY(LOCAL(labels)(&text, in[n]->rank, labels[n]));
        int64_t dots = 0;
        for (int64_t i = 0; i < in[n]->rank; ++i) {
            const int label = labels[n][i];
            const int64_t size = in[n]->shape[i];
            if (extents[label] != 1 && size != 1 && extents[label] != size) return "one letter has two sizes";
            if (size != 1) extents[label] = size;
            ++seen[label];
            dots += label < DOTS_;
        }
        most_dots = MAX_OF(most_dots, dots);
    }
    if (arrow) {
        for (const char *p = arrow + 2; *p; ++p) {
            if (*p == '.') {
                for (int64_t k = most_dots; k > 0; --k) order[results++] = (int)(DOTS_ - k);
                p += 2;
            } else if (*p != ' ') {
                order[results++] = *p;
            }
        }
    } else {
        for (int label = 0; label < LETTERS_; ++label)
            if (label < DOTS_ ? seen[label] > 0 : seen[label] == 1) order[results++] = label;
    }
    int64_t shape[MAX_RANK], position[LETTERS_];
    memset(position, -1, sizeof position);
    for (int i = 0; i < results; ++i) position[order[i]] = axes, shape[i] = extent[axes++] = extents[order[i]];
    for (int label = 0; label < LETTERS_; ++label)
        if (seen[label] && position[label] < 0) position[label] = axes, extent[axes++] = extents[label];
    for (int n = 0; n < INPUTS; ++n) {
        int64_t own[MAX_RANK];
        strides_of(in[n]->rank, in[n]->shape, own);
        for (int64_t i = 0; i < in[n]->rank; ++i)
            if (in[n]->shape[i] != 1) strides[n][position[labels[n][i]]] += own[i];
    }
    TRY(allocate(out[0], results, shape, sizeof(O0)));
    const int64_t count = product(results, shape), depth = product(axes - results, extent + results);
    int64_t index[MAX_RANK * INPUTS] = {0};
    for (int64_t i = 0; i < count; ++i, advance(results, extent, index)) {
        O0 sum = 0;
        for (int64_t k = 0; k < depth; ++k, advance(axes - results, extent + results, index + results)) {
            O0 factor = 1;
            for (int n = 0; n < INPUTS; ++n) factor *= ((const O0 *)in[n]->data)[offset_of(axes, index, strides[n])];
            sum += factor;
        }
        OUT(0)[i] = sum;
    }
    return NULL;
}
