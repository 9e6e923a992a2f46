/* Operators: Unique */

/* A slice along the axis: `outer` runs of `inner` elements, each `step` behind the one before. */
typedef struct {
    const I0 *first;
    int64_t place, outer, inner, step;
} LOCAL(slice);

static int LOCAL(compare)(const void *left, const void *right) {
    const LOCAL(slice) *a = left, *b = right;
    for (int64_t i = 0; i < a->outer; ++i)
        for (int64_t k = 0; k < a->inner; ++k) {
            const I0 x = a->first[i * a->step + k], y = b->first[i * a->step + k];
            if (x != y && (x == x || y == y)) return x < y || y != y ? -1 : 1;
        }
    return 0;
}

static int LOCAL(compare_places)(const void *left, const void *right) {
    const LOCAL(slice) *a = left, *b = right;
    const int order = LOCAL(compare)(a, b);
    return order ? order : a->place < b->place ? -1 : 1;
}

static int LOCAL(compare_groups)(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return a[0] < b[0] ? -1 : 1;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    int64_t rank, shape[MAX_RANK], axis = A_axis;
    TRY(shape_along(in[0], &axis, &rank, shape));
    const int64_t count = shape[axis], outer = product(axis, shape),
                  inner = product(rank - axis - 1, shape + axis + 1);
    LOCAL(slice) *slices = malloc((size_t)(count + 1) * sizeof *slices);
    int64_t (*groups)[3] = malloc((size_t)(count + 1) * sizeof *groups); /* first place, number, slice */
    int64_t *group_of = malloc((size_t)(count + 1) * sizeof *group_of),
            *rank_of = malloc((size_t)(count + 1) * sizeof *rank_of);
    const char *problem = slices && groups && group_of && rank_of ? NULL : "out of memory";
    int64_t distinct = 0;
    if (!problem) {
        for (int64_t i = 0; i < count; ++i)
            slices[i] = (LOCAL(slice)){IN(0) + i * inner, i, outer, inner, count * inner};
        qsort(slices, (size_t)count, sizeof *slices, LOCAL(compare_places));
        for (int64_t i = 0; i < count; ++i) {
            if (i == 0 || LOCAL(compare)(&slices[i - 1], &slices[i])) {
                groups[distinct][0] = slices[i].place;
                groups[distinct][1] = 0;
                groups[distinct][2] = distinct;
                ++distinct;
            }
            ++groups[distinct - 1][1];
            group_of[slices[i].place] = distinct - 1;
        }
        if (!A_sorted) qsort(groups, (size_t)distinct, sizeof *groups, LOCAL(compare_groups));
        for (int64_t g = 0; g < distinct; ++g) rank_of[groups[g][2]] = g;
        shape[axis] = distinct;
        if (WANTS(0)) problem = allocate(out[0], rank, shape, sizeof(O0));
        if (WANTS(1) && !problem) problem = allocate(out[1], 1, &distinct, sizeof(O1));
        if (WANTS(2) && !problem) problem = allocate(out[2], 1, &count, sizeof(O2));
        if (WANTS(3) && !problem) problem = allocate(out[3], 1, &distinct, sizeof(O3));
    }
    if (!problem) {
        for (int64_t g = 0; g < distinct; ++g) {
            for (int64_t i = 0; i < outer && WANTS(0); ++i)
                memcpy(OUT(0) + (i * distinct + g) * inner, IN(0) + (i * count + groups[g][0]) * inner,
                       (size_t)inner * sizeof(O0));
            if (WANTS(1)) OUT(1)[g] = (O1)groups[g][0];
            if (WANTS(3)) OUT(3)[g] = (O3)groups[g][1];
        }
        for (int64_t i = 0; i < count && WANTS(2); ++i) OUT(2)[i] = (O2)rank_of[group_of[i]];
    }
    free(slices), free(groups), free(group_of), free(rank_of);
    return problem;
}
