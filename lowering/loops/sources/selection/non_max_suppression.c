/* Operators: NonMaxSuppression */

typedef struct {
    float score;
    int64_t box;
} LOCAL(entry);

static int LOCAL(compare)(const void *left, const void *right) {
    const LOCAL(entry) *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->box < b->box ? -1 : 1;
}

/* Whether two boxes overlap by more than the threshold. */
static bool LOCAL(suppresses)(const float *a, const float *b, float threshold) {
    float low[2][2], high[2][2];
    const float *boxes[] = {a, b};
    for (int n = 0; n < 2; ++n)
        for (int k = 0; k < 2; ++k) {
            const float p = boxes[n][k], q = boxes[n][k + 2];
            low[n][k] = A_center_point_box ? p - q / 2 : MIN_OF(p, q);
            high[n][k] = A_center_point_box ? p + q / 2 : MAX_OF(p, q);
        }
    float common = 1, areas[2] = {1, 1};
    for (int k = 0; k < 2; ++k) {
        const float side = MIN_OF(high[0][k], high[1][k]) - MAX_OF(low[0][k], low[1][k]);
        if (!(side > 0)) return false;
        common *= side;
        areas[0] *= high[0][k] - low[0][k];
        areas[1] *= high[1][k] - low[1][k];
    }
    if (areas[0] <= 0 || areas[1] <= 0) return false;
    return common / (areas[0] + areas[1] - common) > threshold;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t batches = in[1]->shape[0], classes = in[1]->shape[1], boxes = in[1]->shape[2];
    if (!has_shape(in[0], 3, (int64_t[]){batches, boxes, 4})) return "the boxes do not fit the scores";
    bool given[5] = {false}; /* an empty operand is as good as none */
    for (int64_t n = 2; n < INPUTS; ++n) {
        if (HAS(n) && count_elements(in[n]) > 1) return "a limit or threshold is no single number";
        given[n] = HAS(n) && has_elements(in[n], 1);
    }
    const int64_t limit = given[2] ? MIN_OF(*(const int64_t *)in[2]->data, boxes) : 0;
    const float overlap = given[3] ? *(const float *)in[3]->data : 0;
    const float least = given[4] ? *(const float *)in[4]->data : -INFINITY;
    int64_t shape[2] = {batches * classes * MAX_OF(0, limit), 3}, count = 0;
    TRY(allocate(out[0], 2, shape, sizeof(O0)));
    LOCAL(entry) *entries = malloc((size_t)(boxes + 1) * sizeof *entries);
    if (entries == NULL) return "out of memory";
    for (int64_t n = 0; n < batches * classes && limit > 0; ++n) {
        const float *scores = (const float *)in[1]->data + n * boxes,
                    *places = (const float *)in[0]->data + n / classes * boxes * 4;
        int64_t candidates = 0, chosen = 0;
        for (int64_t i = 0; i < boxes; ++i)
            if (!given[4] || scores[i] > least) entries[candidates++] = (LOCAL(entry)){scores[i], i};
        qsort(entries, (size_t)candidates, sizeof *entries, LOCAL(compare));
        for (int64_t i = 0; i < candidates && chosen < limit; ++i) {
            bool keeps = true;
            for (int64_t k = 0; k < chosen && keeps; ++k)
                keeps = !LOCAL(suppresses)(places + 4 * entries[i].box, places + 4 * entries[k].box, overlap);
            if (!keeps) continue;
            entries[chosen++] = entries[i];
            OUT(0)[count * 3] = n / classes;
            OUT(0)[count * 3 + 1] = n % classes;
            OUT(0)[count++ * 3 + 2] = entries[chosen - 1].box;
        }
    }
    free(entries);
    out[0]->shape[0] = count;
    return NULL;
}
