/* Operators: TreeEnsembleClassifier TreeEnsembleRegressor */

#define LANES 8 /* walks side by side: what one waits for in the cache, another one computes in */
#define ROWS 64 /* whose scores stay in the first cache while all trees are walked */
#ifdef OP_TreeEnsembleClassifier
#define SCORED A_classlabels_int64s_count
#define SCORES 1 /* the place of the scores among the outputs */
#else
#define SCORED A_n_targets
#define SCORES 0
#endif

typedef struct {
    float threshold;
    int32_t feature, first, bits;
} LOCAL(node);

/* Walks trees, each for a row, from their roots to leaves. */
static inline void LOCAL(walk)(const LOCAL(node) *nodes, const I0 *const *rows, int32_t *places) {
    int32_t open = 1;
    while (open) {
        open = 0;
        for (int64_t k = 0; k < LANES; ++k) {
            const LOCAL(node) node = nodes[places[k]];
            const I0 x = rows[k][node.feature];
            bool is_first = x <= node.threshold;
            if (A_takes_nan) is_first |= x != x && (node.bits & 2);
            places[k] = node.first + (node.bits & !is_first);
            open |= node.bits;
        }
    }
}

/* Adds the weights of a leaf to the scores of a row, and notes which ones have some. */
static inline void LOCAL(gather)(int32_t place, float *scores, bool *has) {
    for (int32_t i = A_starts[place]; i < A_starts[place + 1]; ++i) {
        scores[A_numbers[i]] += A_factors[i];
        has[A_numbers[i]] = true;
    }
}

static inline float LOCAL(logistic)(float x) {
    const float part = 1 / (1 + expf(-fabsf(x)));
    return x < 0 ? 1 - part : part;
}

/* The scores that are returned; one without weights is 0, for ONNX Runtime adds no base value to it. */
static void LOCAL(transform)(float *scores, const bool *has, int64_t count) {
    for (int64_t i = 0; i < count; ++i) scores[i] = has[i] ? scores[i] : 0;
    if (strcmp(A_post_transform, "LOGISTIC") == 0) {
        for (int64_t i = 0; i < count; ++i) scores[i] = LOCAL(logistic)(scores[i]);
    } else if (strcmp(A_post_transform, "SOFTMAX") == 0) {
        float most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < count; ++i) most = fmaxf(most, scores[i]);
        for (int64_t i = 0; i < count; ++i) sum += scores[i] = expf(scores[i] - most);
        for (int64_t i = 0; i < count; ++i) scores[i] /= sum;
    }
}

#ifdef OP_TreeEnsembleClassifier
/* The label of a row, whose scores become those that are returned, as ONNX Runtime reads the operator: the only score of
 * two classes is that of the second one, a probability if no weight is negative. */
static int64_t LOCAL(classify)(float *scores, bool *has, int64_t count) {
    if (count > 2) {
        int64_t best = -1;
        for (int64_t i = 0; i < A_base_values_count; ++i) scores[i] += A_base_values[i], has[i] = true;
        for (int64_t i = 0; i < count; ++i)
            if (has[i] && (best < 0 || scores[i] > scores[best])) best = i;
        LOCAL(transform)(scores, has, count);
        return A_classlabels_int64s[MAX_OF(best, 0)];
    }
    const bool has_both = has[1];
    if (A_base_values_count == 2 && has_both) {
        scores[1] = A_base_values[1] + scores[0];
        scores[0] = -scores[1];
    } else {
        for (int64_t i = 0; i < A_base_values_count; ++i) scores[i] += A_base_values[i];
    }
    const bool are_two = has_both || A_base_values_count == 2;
    const float deciding = has_both ? scores[1] : has[0] ? scores[0] : 0;
    const bool is_second = deciding > (A_counted == 1 && A_is_positive ? 0.5f : 0);
    if (are_two) {
        LOCAL(transform)(scores, has, 2);
    } else if (A_counted == 1 && A_is_positive) {
        scores[1] = scores[0], scores[0] = 1 - scores[1];
    } else {
        scores[1] = scores[0], scores[0] = -scores[1], has[1] = has[0];
        if (strcmp(A_post_transform, "LOGISTIC") == 0) LOCAL(transform)(scores, has, 2);
    }
    return A_counted == 1 ? A_classlabels_int64s[is_second] : is_second;
}
#endif

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const LOCAL(node) *nodes = (const void *)A_nodes;
    const int64_t rank = in[0]->rank, columns = rank > 0 ? in[0]->shape[rank - 1] : 0;
    const int64_t count = rank == 2 ? in[0]->shape[0] : 1;
    if (rank < 1 || rank > 2) return "an ensemble of trees takes rows";
    if (columns <= MAX_OF(A_features, 0)) return "a row has fewer columns than the trees read";
#ifdef OP_TreeEnsembleClassifier
    if (WANTS(0)) TRY(allocate(out[0], 1, &count, sizeof(O0)));
#endif
    const int64_t scored = SCORED;
    tensor unread = {0}, *to = WANTS(SCORES) ? out[SCORES] : &unread;
    TRY(allocate(to, 2, (int64_t[]){count, scored}, sizeof(float)));
    bool has[ROWS * SCORED];
    float *scores = to->data;
    memset(scores, 0, (size_t)(count * scored) * sizeof *scores);
    for (int64_t first = 0; first < count; first += ROWS) {
        const int64_t rows = MIN_OF(ROWS, count - first);
        const I0 *x = IN(0) + first * columns, *at[LANES];
        float *y = scores + first * scored;
        int32_t places[LANES];
        memset(has, 0, sizeof has);
        if (rows < LANES) {
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t tree = 0; tree < A_roots_count; tree += LANES) {
                    for (int64_t k = 0; k < LANES; ++k)
                        places[k] = A_roots[MIN_OF(tree + k, A_roots_count - 1)], at[k] = x + r * columns;
                    LOCAL(walk)(nodes, at, places);
                    for (int64_t k = 0; k < LANES && tree + k < A_roots_count; ++k)
                        LOCAL(gather)(places[k], y + r * scored, has + r * scored);
                }
        } else {
            for (int64_t tree = 0; tree < A_roots_count; ++tree)
                for (int64_t r = 0; r < rows; r += LANES) {
                    for (int64_t k = 0; k < LANES; ++k)
                        places[k] = A_roots[tree], at[k] = x + MIN_OF(r + k, rows - 1) * columns;
                    LOCAL(walk)(nodes, at, places);
                    for (int64_t k = 0; k < LANES && r + k < rows; ++k)
                        LOCAL(gather)(places[k], y + (r + k) * scored, has + (r + k) * scored);
                }
        }
        for (int64_t r = 0; r < rows; ++r) {
#ifdef OP_TreeEnsembleClassifier
            const int64_t label = LOCAL(classify)(y + r * scored, has + r * scored, scored);
            if (WANTS(0)) OUT(0)[first + r] = label;
#else
            for (int64_t i = 0; i < scored; ++i)
                y[r * scored + i] += A_base_values_count == scored ? A_base_values[i] : 0;
            if (scored > 1) LOCAL(transform)(y + r * scored, has + r * scored, scored); /* as ONNX Runtime */
#endif
        }
    }
    if (unread.is_owned) free(unread.data);
    return NULL;
}
